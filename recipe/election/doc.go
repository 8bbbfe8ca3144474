// Package election implements kazoo's Election (kazoo.recipe.election): one of the candidates leads. Python and Go processes can
// be candidates in one election.
//
// # Overview
//
// [Election.Run] waits until its candidate is elected and calls a function, with a context that ends when the candidate may not
// lead any more. [Election.Contenders] lists the leader and the candidates that wait. [Election.Observe] yields the leader and
// each later one.
//
// To cancel a candidacy or a leadership, end Run's context. kazoo's cancel does the former and does not reach a function that
// leads.
//
// # State
//
// The znodes are those of an exclusive lock, see package lock:
//
//	<path>                            persistent, empty, created when missing, never deleted
//	<path>/<guid>__lock__<sequence>   a candidate: ephemeral, data: the identifier in UTF-8
//
// # Guarantees
//
//   - At most one function of both languages runs with a context that has not ended, as long as nobody else deletes candidates.
//   - Candidates lead in the order in which they were created.
//   - The function's context ends when the leadership can't be trusted any more, with the cause of the hold (see
//     lock.Held.Context), and when Run's context ends.
//   - Run returns only its function's error: nil after a lost leadership if the function returned nil.
//   - The next candidate leads only when the function has returned or the session is over, also when the function panics or ends
//     its goroutine.
//   - Once a candidate of a handle was created, no refusal by the servers ends a Run that waits, nor an Observe that has yielded
//     a leader: only the end of the context and that of the session do.
//   - Observe yields the current leader and then each later one that it sees. The last one that it yields is the newest.
//
// # Not guaranteed
//
//   - A function that goes on after its context has ended leads beside another when the session is over.
//   - Observe may skip leaders of short terms, and the leader may have changed when it is yielded.
//   - Run may return long after its function: it waits until the candidate is deleted, and while no server can be reached, until
//     its context ends. Run then returns the function's error, which does not say that the candidate may still exist.
//   - Run creates no new candidate when its function has returned. To lead again, call Run in a loop.
//
// # Refusals, and lost leadership
//
// An ACL or a quota may be wrong for a while: the log has the error, of the kind "refused", and Run creates a candidate again, at
// the end of the queue. A function that must tell whether it led to its end returns the cause of its context. kazoo does not
// notify its leaders: a Python function goes on when its session has expired, beside the next leader.
//
// # Concurrency
//
// Any goroutine may call any method. Each Run is a candidate of its own, and calls its function on the goroutine of its caller.
// Run returns when the candidate is deleted or its context has ended; after the end of its context the removal goes on in the
// background.
package election
