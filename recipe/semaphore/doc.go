// Package semaphore is kazoo's Semaphore: up to a fixed number of leases under one
// znode. Python and Go processes can share one.
//
// # Overview
//
// [Semaphore.Acquire] waits until a lease is free, takes it, and returns a [Held]. Its
// context is the lease: it ends, with a cause, when it can't be trusted to be ours any
// more. It does not end with Acquire's context. [Semaphore.Do] calls a function with a context that ends
// with either, and releases the lease when the function has returned. A program that calls Acquire itself works with
// such a context, too, and calls [Held.Release] when the work has returned, whatever ended it.
//
// # State
//
//	<path>                 persistent, data: the number of leases in decimal; never deleted
//	<path>/<guid>          a lease: ephemeral, data: the identifier in UTF-8
//	<path>-__lock__        the directory of the inner lock, which who wants a lease holds
//	<path>-__lock__/<guid>__lock__<sequence>
//	                       its contenders; data: the identifier as Python prints bytes, b'id'
//
// The GUID is new for each lease; kazoo takes one for each of its Semaphore objects, and
// does not look at anyone else's.
//
// # Guarantees
//
//   - At most as many leases are held as the znode at path says, as long as nobody deletes
//     leases or contenders of others, or writes another number over the first. The number
//     is made with the znode, in one request; in an empty znode it is written if that is
//     still empty. A lease is made only if the number is still the one that was read, and
//     the inner lock is still ours: all in one transaction.
//   - A handle that was made with another number than the znode's gets [ErrMaxLeases].
//   - Leases are handed out in the order in which Acquire was called: the inner lock's.
//     A waiter keeps its place through lost connections and ends of trust, until its session
//     expires. Only the first waiter watches the leases.
//   - A lease's context ends when trust in the session ends ([session.ErrTrustLost]), the
//     session expires ([session.ErrSessionExpired]), the lease is removed by somebody
//     ([ErrLost]), another number of leases is written ([ErrMaxLeases]), or it is released
//     ([ErrReleased]).
//   - Losing a lease gives nothing away: its znode stays until Release, or until its session
//     is over, so that nobody follows while the work is still stopping.
//   - No lease and no contender is orphaned, whatever reply is lost and whenever a caller
//     gives up: it is removed in the background, for as long as its session lives.
//
// # Not guaranteed
//
//   - What Python members agreed on: kazoo makes the znode empty and writes the number
//     later, over whatever stands there. A Go member that reads the new number refuses it,
//     and one that has a lease by another number loses it a moment later; a Python member is
//     told nothing.
//   - Every child of path counts as a lease, whoever made it, as in kazoo.
//   - Data at path that is no number is left alone, as in kazoo: each handle then goes by
//     its own number.
//   - The number can't be changed: delete the znode while nobody uses the semaphore.
//   - [Semaphore.TryAcquire] fails when somebody else holds the inner lock, though a lease
//     may be free. That is what kazoo's non-blocking acquire does: who holds it is in front.
//   - A process that checks the context and is stopped before its next step can act after
//     its lease went to another.
//   - A Python process whose link broke while it waited may leave a contender of the inner
//     lock behind, on which everybody waits until its session ends. Nothing removes it here;
//     [recipe.BlockedError] names it.
//
// # Concurrency
//
// All methods may be called from any goroutine. A handle has one lease at a time: as in
// kazoo, Acquire on a handle that has one returns the same [Held], and Release ends it for
// all. After a lease was lost, Acquire waits until it is released, and TryAcquire fails until
// then, as it does while another goroutine waits in Acquire. Do calls its function on
// the goroutine that called it, one at a time on a handle. A lease has two goroutines that
// watch its znode and the number of leases; they end with the lease. A lease keeps the session open
// ([session.Session.Hold]) until Release is called.
package semaphore
