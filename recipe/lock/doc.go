// Package lock implements kazoo's Lock, ReadLock and WriteLock (kazoo.recipe.lock). A lock is a queue of contenders below one
// znode: the first contender holds the lock, or the first readers together. Python and Go processes can share one lock.
//
// # Overview
//
// [Lock.Acquire] creates a contender, waits until it is the first, and returns a [Held]. The context of the Held ends, with a
// cause, when the lock can't be trusted to be this handle's any more. It does not end with Acquire's context. [Lock.Do] calls a
// function with a context that ends with either, and releases the lock when the function has returned. A program that calls
// Acquire itself should work with such a context, too, as the example of Acquire does, and call [Held.Release] when the work has
// returned, for whatever reason.
//
// [New] returns a handle on an exclusive lock, [NewRead] and [NewWrite] handles on the two sides of a read/write lock. A
// contender waits for these contenders in front of it:
//
//	Lock        __lock__
//	WriteLock   __lock__ and __rlock__
//	ReadLock    __lock__
//
// To cancel an Acquire that waits, end its context, as with kazoo's cancel.
//
// # State
//
//	<path>                            persistent, empty, created when missing, never deleted
//	<path>/<guid>__lock__<sequence>   a contender: ephemeral, data: the identifier in UTF-8
//	<path>/<guid>__rlock__<sequence>  a contender of a ReadLock
//
// With [Options].Persistent the contenders are persistent.
//
// Children with other names are ignored, so the znodes of other recipes may exist beside the contenders. The GUID is new for each
// attempt. kazoo has one GUID for each of its Lock objects, and ignores the GUIDs of others.
//
// # Guarantees
//
//   - At most one process of both languages holds the lock with a context that has not ended, as long as nobody else deletes
//     contenders. A read/write lock is held by one writer, or by readers only.
//   - Contenders get the lock in the order in which they were created. A contender keeps its place through lost connections and
//     ends of trust, until its session expires.
//   - A hold's context ends when trust in the session ends ([session.ErrTrustLost]), the session expires
//     ([session.ErrSessionExpired]), somebody removes the contender ([ErrLost]), or the lock is released ([ErrReleased]).
//   - The hold of a persistent contender ends only when somebody removes the contender or the lock is released. A removal during
//     an outage is noticed when there is a connection again.
//   - The end of a hold deletes nothing: the contender stays until Release or until its session is over, so that nobody gets the
//     lock while the work is still stopping.
//   - No contender is orphaned, whichever reply is lost and whenever a caller gives up: it is removed in the background, for as
//     long as its session lives.
//   - Tokens grow from holder to holder: [Held.Token] is the contender's czxid. The token of a writer is larger than those of all
//     readers before it, and smaller than those of all readers after it.
//
// # Not guaranteed
//
//   - A process that checks the context and is stopped before its next step can act after another has acquired the lock. To
//     prevent that, let the store that it writes to compare tokens.
//   - A Python contender whose removal failed exists until its session ends, because kazoo does not repeat a removal. This
//     package does not remove it, but [recipe.BlockedError] names it.
//   - A lock is not re-entrant: a second Acquire waits behind the first. A second Acquire of a ReadLock is another reader; kazoo
//     refuses it.
//   - A Lock ignores readers, while Lock and WriteLock on one path exclude each other, so that this mistake goes unnoticed: use
//     NewRead together with NewWrite, and never New beside NewRead.
//   - The read/write locks of kazoo before 2.9 can deadlock, also with those of this package.
//   - A persistent contender exists until somebody deletes it by hand if its process dies or the session's Run ends before the
//     release. No later process can take over its hold.
//   - kazoo's exclusive Lock ignores the contenders of go-zookeeper's and Curator's locks. So does this package, unless
//     [Options].ExtraPatterns has their words. ExtraPatterns has this handle wait for them, and has nobody wait for this handle.
//     go-zookeeper's Lock waits for every child with a lower sequence number, so the two exclude each other. Curator's locks do
//     not wait for contenders of other names: a Curator lock is acquired while this lock is held, whatever ExtraPatterns says.
//   - Nearly 2^31 contenders in one directory use up its sequence numbers. Then Acquire returns [ErrSequenceExhausted], and the
//     directory must be deleted and created again.
//   - Tokens may be smaller after ZooKeeper has lost its data.
//
// # Concurrency
//
// Any goroutine may call any method. Acquire, TryAcquire, Contenders and Release block until ZooKeeper has answered or their
// context ends. Do calls its function on the goroutine of its caller. A hold has one goroutine, which watches its contender and
// ends with the hold. A hold keeps the session open ([session.Session.KeepOpen]) until Release is called.
package lock
