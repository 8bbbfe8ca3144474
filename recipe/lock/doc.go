// Package lock is kazoo's Lock, ReadLock and WriteLock (kazoo.recipe.lock): a queue of
// contenders under one znode, of which the first holds the lock, or the first readers
// together. Python and Go processes can share one.
//
// # Overview
//
// [Lock.Acquire] makes a contender, waits until it is the first, and returns a
// [Held]. Its context is the hold: it ends, with a cause, when the lock can't be
// trusted to be ours any more. It does not end with Acquire's context. [Lock.Do] calls a function with a
// context that ends with either, and releases the lock when the function has returned. A program that calls
// Acquire itself works with such a context, too, as the example of Acquire does, and calls [Held.Release] when the work has
// returned, whatever ended it.
//
// [New] makes a handle on an exclusive lock, [NewRead] and [NewWrite] on the two sides of a
// read/write lock. Who waits for whom:
//
//	Lock        a smaller __lock__
//	WriteLock   a smaller __lock__ or __rlock__
//	ReadLock    a smaller __lock__
//
// To cancel a waiting Acquire, end its context; kazoo's cancel has no other counterpart.
//
// # State
//
//	<path>                            persistent, empty, made when missing, never deleted
//	<path>/<guid>__lock__<sequence>   a contender: ephemeral, data: the identifier in UTF-8
//	<path>/<guid>__rlock__<sequence>  a contender of a ReadLock
//
// With [Options].Persistent the contenders are persistent.
//
// Children with other names are ignored, so the znodes of other recipes may stand
// beside the contenders. The GUID is new for each attempt; kazoo takes one for each
// of its Lock objects, and does not look at anyone else's.
//
// # Guarantees
//
//   - At most one process of both languages holds the lock with a context that has
//     not ended, as long as nobody else deletes contenders. Of a read/write lock that is one
//     writer, or readers only.
//   - Contenders are served in the order in which they were made. One keeps its place
//     through lost connections and ends of trust, until its session expires.
//   - A hold's context ends when trust in the session ends ([session.ErrTrustLost]), the
//     session expires ([session.ErrSessionExpired]), the contender is removed by somebody
//     ([ErrLost]), or the lock is released ([ErrReleased]).
//   - The hold of a persistent contender ends only when the contender is removed by somebody
//     or the lock is released, as nobody else can get the lock before that. In an outage it
//     goes on; that it was removed meanwhile is noticed when there is a connection again.
//   - Losing the hold gives nothing away: the contender stays until Release, or until its
//     session is over, so that nobody follows while the work is still stopping.
//   - No contender is orphaned, whatever reply is lost and whenever a caller gives up: it
//     is removed in the background, for as long as its session lives.
//   - Tokens grow from holder to holder: [Held.Token] is the contender's czxid. That of a
//     writer is larger than those of all readers before it, and smaller than those after.
//
// # Not guaranteed
//
//   - A process that checks the context and is stopped before its next step can act after
//     another has the lock. A sink that must not see that compares tokens.
//   - A Python contender whose removal was lost stands until its session ends; kazoo gives
//     up on it. Nothing removes it here; [recipe.BlockedError] names it.
//   - It is not re-entrant: a second Acquire waits behind the first. That of a ReadLock
//     is another reader; kazoo refuses it.
//   - A Lock ignores readers. Lock and WriteLock on one path exclude each other, so
//     that goes unnoticed: use NewRead and NewWrite together, and never New beside NewRead.
//   - The read/write locks of kazoo before 2.9 can deadlock, with ours, too.
//   - A persistent contender whose process dies, or that Run left, stands until somebody
//     deletes it by hand. Its hold can't be taken up again.
//   - kazoo's exclusive Lock does not see contenders of go-zookeeper's and Curator's locks,
//     and neither does this one unless [Options].ExtraPatterns says so.
//   - Nearly 2^31 contenders in one directory use up its sequence numbers; then Acquire
//     returns an error that says so, and the directory must be made anew.
//   - Growing tokens across a loss of ZooKeeper's data.
//
// # Concurrency
//
// All methods may be called from any goroutine. Acquire, TryAcquire, Contenders and Release
// block until ZooKeeper has answered or their context ends. Do calls its function on the goroutine that
// called it. A hold has one goroutine that watches its contender; it ends with the hold. A hold keeps the session open
// ([session.Session.Hold]) until Release is called.
package lock
