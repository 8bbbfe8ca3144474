// Package queue is kazoo's Queue and LockingQueue: entries that many put and each of
// which one takes. Python and Go processes can share them.
//
// # Overview
//
// [Queue.Get] takes an entry off the queue; a process that dies then takes it along.
// [LockingQueue.Get] returns a [Held] entry, which others do not get while it is held;
// [Held.Consume] takes it off, and [Held.Release] gives it back, as the end of the session
// does. [LockingQueue.Do] does that around a function, [LockingQueue.All] is a loop of Get and Consume.
//
// # State
//
//	<path>/entry-<priority>-<sequence>           Queue: persistent, data: the value
//
//	<path>/entries/entry-<priority>-<sequence>   LockingQueue: persistent, data: the value
//	<path>/taken/entry-<priority>-<sequence>     the entry of that name is held: ephemeral,
//	                                             data: 32 hex digits, new for each take
//
// The priority has three digits; lower ones come first, then lower sequence numbers. The
// directories are persistent, empty, made when missing, and never deleted.
//
// # Guarantees
//
//   - Values are taken in the order of their names, as far as they are known when a Get
//     begins; one value of many that are put together with PutAll is never seen without
//     the others.
//   - A put that returns nil was done once; one that returns an error was not, unless that is
//     [session.ErrUncertain]. Puts are never repeated, because two entries could come of one.
//   - No entry of a Queue is given to two callers. Once its removal was asked for, Get waits for
//     the answer even if its context ends, and when there is none returns the value together
//     with [session.ErrUncertain]: another may get it too, or nobody.
//   - An entry of a LockingQueue is held by at most one with a context that has not ended, as
//     long as nobody else deletes what is taken; it goes only by Consume. Taking is one
//     transaction, and so is consuming, which fails if the hold is seen to be lost.
//   - Whatever reply is lost, nobody else's hold is removed: each time before a hold is deleted,
//     alone or with its entry, its znode is seen, after a Sync, to be the one that was made.
//   - A hold that its caller gave up, or of which it can't be seen whether it was made, is
//     removed in the background, for as long as its session lives.
//
// # Not guaranteed
//
//   - A process that is stopped while it holds an entry, longer than its session lasts, may go on
//     with it after another has got it. Check [Held.Valid] right before each effect.
//   - ZooKeeper can't delete a znode "if it is mine". Between looking at a hold and deleting it
//     lies one round trip; if in it somebody deletes the hold and another takes the entry,
//     Release removes the other's hold, and Consume the entry, too. The other gets [ErrLost].
//   - kazoo's queues take any child for an entry. Here one must begin with "entry-"; Len
//     counts all, as kazoo's does.
//   - kazoo's Queue keeps the names that it has listed, so entries put later with a better
//     priority wait; and it may lose an entry when a reply is lost.
//   - kazoo's LockingQueue hangs after a lost connection, and its get, if another takes the first
//     entry, waits although more are free. Its consume returns True when it was refused.
//   - kazoo's get returns the same entry until it is consumed. Here each Get takes another.
//   - Python does not come to its turn beside processes that get without a pause: its
//     retries back off up to an hour.
//   - An entry that is deleted and made again under its name between being read and being taken is
//     taken for the one that was read, if it was set as often: ZooKeeper has no other condition.
//     So don't delete a queue's directories, where names come again, while somebody uses them.
//   - An entry that has children can't be deleted. It is left alone, with a warning to the Logger,
//     and each handle looks at it again, and warns again, every ten seconds; those behind it are
//     taken. (Beyond a thousand of them the others are read whenever one is passed, and told of in
//     one warning.) kazoo's queues fail on it.
//   - An entry that somebody made by a name that has the number that comes next: puts with its
//     priority fail with [session.ErrNodeExists] until it is taken or its number has passed.
//   - Each Get lists the directory: keep queues to some thousands of entries.
//
// # Concurrency
//
// All methods may be called from any goroutine. They block until ZooKeeper has answered,
// or an entry is there, or their context ends. Do calls its function on the goroutine that called it. A hold has one goroutine that watches its
// znode; it ends with the hold. A hold keeps the session open ([session.Session.Hold]) until
// Consume or Release is called.
package queue
