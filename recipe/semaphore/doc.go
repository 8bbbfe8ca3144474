// Package semaphore implements kazoo's Semaphore (kazoo.recipe.lock): up to a fixed number of leases below one znode. Python and
// Go processes can share one semaphore.
//
// # Overview
//
// [Semaphore.Acquire] waits until a lease is free, takes it, and returns a [Held]. The context of the Held ends, with a cause,
// when the lease can't be trusted to be this handle's any more. It does not end with Acquire's context. [Semaphore.Do] calls a
// function with a context that ends with either, and releases the lease when the function has returned. A program that calls
// Acquire itself should work with such a context, too, and call [Held.Release] when the work has returned, for whatever reason.
//
// # State
//
//	<path>                 persistent, data: the number of leases in decimal; never deleted
//	<path>/<guid>          a lease: ephemeral, data: the identifier in UTF-8
//	<path>-__lock__        the directory of the inner lock, which a process holds while it takes a lease
//	<path>-__lock__/<guid>__lock__<sequence>
//	                       a contender of the inner lock; data: the identifier as Python prints bytes, b'id'
//
// The GUID is new for each lease. kazoo has one GUID for each of its Semaphore objects, and ignores the GUIDs of others.
//
// # Guarantees
//
//   - At most as many leases are held as the znode at path says, as long as nobody deletes the leases or contenders of others, or
//     writes another number over the first.
//   - A handle that was made with another number than the znode's gets [ErrMaxLeases].
//   - Leases go to callers in the order in which they called Acquire. A waiter keeps its place through lost connections and ends
//     of trust, until its session expires.
//   - A lease's context ends when trust in the session ends ([session.ErrTrustLost]), the session expires
//     ([session.ErrSessionExpired]), somebody removes the lease ([ErrLost]), somebody writes another number of leases
//     ([ErrMaxLeases]), or the lease is released ([ErrReleased]).
//   - The end of a hold deletes nothing: the lease's znode stays until Release or until its session is over.
//   - No lease and no contender is orphaned, whichever reply is lost and whenever a caller gives up: it is removed in the
//     background, for as long as its session lives.
//
// # Not guaranteed
//
//   - What Python members agreed on: kazoo creates the znode empty and writes the number later, over any other number. A Go
//     member that reads the new number refuses it, and a Go member that has a lease by another number loses it a moment later.
//     Python members are not notified.
//   - Every child of path counts as a lease, whoever created it, as in kazoo.
//   - Data at path that is not a number is left alone, as in kazoo: each handle then uses its own number.
//   - The number can't be changed: delete the znode while nobody uses the semaphore.
//   - [Semaphore.TryAcquire] fails when somebody else holds the inner lock, though a lease may be free. kazoo's non-blocking
//     acquire does the same: the holder of the inner lock is in front.
//   - A process that checks the context and is stopped before its next step can act after its lease went to another.
//   - A Python process whose connection broke while it waited may leave a contender of the inner lock behind, on which everybody
//     waits until its session ends. This package does not remove it, but [recipe.BlockedError] names it.
//
// # The number of leases
//
// The number is created with the znode, in one request. It is written to an empty znode only if the znode is still empty. A lease
// is created only if the number is still the one that was read and the handle still has the inner lock, all in one transaction.
// Callers wait in the order of the inner lock, and only the first of them watches the leases. A lease outlasts its hold so that
// nobody gets it while the work is still stopping.
//
// # Concurrency
//
// Any goroutine may call any method. A handle has one lease at a time: as in kazoo, Acquire on a handle that has a lease returns
// the same [Held], and Release ends it for all callers. After a lease was lost, Acquire waits until it is released, and
// TryAcquire fails until then, as it does while another goroutine waits in Acquire. Do calls its function on the goroutine of its
// caller, one function at a time on a handle. A lease has two goroutines, which watch its znode and the number of leases and end
// with the lease. A lease keeps the session open ([session.Session.KeepOpen]) until Release is called.
package semaphore
