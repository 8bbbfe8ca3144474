// Package election is kazoo's Election (kazoo.recipe.election): of those that stand for
// it, one leads. Python and Go processes can stand in one election.
//
// # Overview
//
// [Election.Run] waits until we are elected and calls a function, under a context that
// ends when we may not lead any more. [Election.Contenders] lists who leads and who waits,
// [Election.Observe] tells who leads, and whenever that changes.
//
// To cancel a candidacy, or to be told to stop leading, end Run's context. kazoo's
// cancel has no other counterpart, and does not reach a function that leads.
//
// # State
//
// That of an exclusive lock, see package lock:
//
//	<path>                            persistent, empty, made when missing, never deleted
//	<path>/<guid>__lock__<sequence>   a candidate: ephemeral, data: the identifier in UTF-8
//
// # Guarantees
//
//   - At most one function of both languages runs with a context that has not ended, as
//     long as nobody else deletes candidates. (kazoo's own leaders are told nothing:
//     a Python function goes on when its session has expired, beside the next leader.)
//   - Candidates lead in the order in which they came.
//   - The context of the function ends, with the cause of the hold (see lock.Held.Context),
//     when leadership can't be trusted any more, and with that of Run's context.
//   - The next one leads only when the function has returned, or our session is over.
//     This holds also when the function panics or ends its goroutine.
//   - Observe yields the leader of the moment and then each later one that it sees, the
//     newest at last.
//
// # Not guaranteed
//
//   - A function that goes on after its context has ended leads beside another one when
//     the session is over.
//   - Observe may skip leaders that came and went, and what it says is past when it is heard.
//   - That Run returns soon after its function: it waits until the candidate is gone, and while
//     no server can be reached until its context ends. What it returns then is what the function
//     has returned, and does not say that the candidate may still stand.
//   - After its function has returned Run does not stand again. Who wants to lead
//     for ever calls it in a loop.
//
// # Concurrency
//
// All methods may be called from any goroutine. Each Run is a candidate of its own; it calls
// its function on the goroutine that called it. Run returns when the candidate
// is gone, or its context has ended; then the rest goes on in the background.
package election
