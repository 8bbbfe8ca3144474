// Package queue is kazoo's Queue and LockingQueue: many processes put entries, and one process takes each. Python and Go
// processes can share a queue.
//
// # Overview
//
// [Queue.Get] takes an entry off the queue; if the process dies then, the entry is lost. [LockingQueue.Get] returns a [Held]
// entry, which others do not get while it is held; [Held.Consume] deletes it, and [Held.Release] gives it back, as the end of the
// session does. [LockingQueue.Do] does both around a function, and [LockingQueue.All] is a loop of Get and Consume.
//
// # State
//
//	<path>/entry-<priority>-<sequence>           Queue: persistent, data: the value
//
//	<path>/entries/entry-<priority>-<sequence>   LockingQueue: persistent, data: the value
//	<path>/taken/entry-<priority>-<sequence>     the entry of that name is held: ephemeral,
//	                                             data: 32 hex digits, new for each Get
//
// The priority has three digits; lower ones come first, then lower sequence numbers. The directories are persistent, empty,
// created when missing, and never deleted.
//
// # Guarantees
//
//   - A Get takes the first by name of the entries that its server knows when the Get begins. Nobody sees one of the values of a
//     PutAll without the others.
//   - A put that returns nil was done once. A put that returns an error was not done, unless the error is [session.ErrUncertain].
//   - No two callers get one entry of a Queue, unless Get returns the value together with [session.ErrUncertain]: another caller
//     may get the value then, too, or nobody else.
//   - At most one hold on an entry of a LockingQueue has a context that has not ended, as long as nobody else deletes holds'
//     znodes. Only Consume deletes an entry, and fails if the hold was lost.
//   - Whatever reply is lost, no other hold is deleted.
//   - Once All has got an entry, no refusal by the servers ends it. Other calls return a refusal to their caller.
//   - A hold whose caller gave up, or whose creation has an unknown outcome, is deleted in the background, for as long as its
//     session lives.
//
// # Not guaranteed
//
//   - A process that is stopped while it holds an entry, longer than its session lasts, may go on with the entry after another
//     has got it. Check [Held.Valid] right before each effect.
//   - ZooKeeper can't delete a znode on condition that it is this handle's own. One round trip lies between the read of a hold's
//     znode and its delete. If somebody deletes the znode and another takes the entry in that time, Release deletes the other's
//     hold, and Consume the entry, too. The other gets [ErrLost].
//   - kazoo's queues take any child for an entry. Here an entry's name must begin with "entry-"; Len counts all children, as
//     kazoo's does.
//   - kazoo's Queue keeps the names that it has listed, so entries put later with a better priority wait. It may lose an entry
//     when a reply is lost.
//   - kazoo's LockingQueue hangs after a lost connection. Its get waits although entries are free, if another takes the first
//     one. Its consume returns True when the server refused it.
//   - kazoo's get returns the same entry until it is consumed. Here each Get takes another.
//   - Beside processes that get without a pause a kazoo client gets no entry: its retries back off up to an hour.
//   - If an entry is deleted and created again under its name between the moments when a Get reads and claims it, the Get can't
//     tell the new entry from the old one when both have the same version: ZooKeeper has no other condition. So don't delete a
//     queue's directories, whose names come again then, while somebody uses them.
//   - An entry that has children can't be deleted. Get skips it and takes those behind it. Each handle reads it again, and logs a
//     warning again, every ten seconds. (A handle remembers a thousand such entries. It reads the others each time, and logs one
//     warning for all of them.) kazoo's queues fail.
//   - While an entry that somebody created by name has the next sequence number, puts with its priority fail with
//     [session.ErrNodeExists], until the entry is taken or its number has passed.
//   - The cost of an entry does not grow with the queue while nobody puts: a handle keeps the names that it has listed, and lists
//     again when somebody has put since, when others have taken so many that a list costs less than to read them, and when it has
//     come to the end. A put may have a better priority than all that is known, so the first Get of each handle after a put lists
//     the directory: 100,000 names are 2 MB. Keep queues to some thousands of entries while others put into them.
//
// # Unknown outcomes, and refusals
//
// Puts are never repeated: a repeated put could make two entries. Once the delete was sent, Get waits for the answer even if its
// context ends. Claiming an entry is one transaction, and so is a Consume. Each time before a hold's znode is deleted, alone or
// with its entry, a read after a Sync shows that the znode is the hold's own. All goes on when it is refused, because an ACL or a
// quota may be wrong for a while; the log has the error, of the kind "refused".
//
// # Concurrency
//
// All methods may be called from any goroutine. They block until ZooKeeper has answered, or an entry is there, or their context
// ends. Do calls its function on the goroutine that called Do. A hold has one goroutine that watches its znode; the goroutine
// ends with the hold. A hold keeps the session open ([session.Session.KeepOpen]) until Consume or Release is called.
package queue
