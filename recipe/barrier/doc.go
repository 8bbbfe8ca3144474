// Package barrier is kazoo's Barrier and DoubleBarrier: a gate that one process opens for all, and a door through which a number
// of processes enter together and leave together. Python and Go processes can share a barrier.
//
// # Overview
//
// A [Barrier] exists from [Barrier.Create] to [Barrier.Remove]; [Barrier.Wait] waits until it is deleted.
//
// A [DoubleBarrier] has a required number of members. [DoubleBarrier.Enter] waits until that many members exist, and returns a
// [Member]; [Member.Leave] waits until all have left. The member's context ends when it is no longer sure that the others count
// it.
//
// # State
//
//	<path>           Barrier: persistent, empty; the barrier is closed while it exists
//
//	<path>           DoubleBarrier: persistent, empty, created when missing, never deleted
//	<path>/<guid>    a member: ephemeral, data: its identifier in UTF-8
//	<path>/ready     persistent, empty: created by the member that completes the required number,
//	                 deleted by each member that starts to leave
//
// The GUID is new for each Enter; kazoo takes one for each of its objects. Every child but ready is a member, whatever its name.
//
// # Guarantees
//
//   - Create returns nil only when a barrier existed at some time after it was called.
//   - Wait returns nil only when the barrier that it read first is deleted, or no barrier existed at some time after the call. A
//     barrier that is removed and set up again between two reads counts as deleted.
//   - Enter returns nil only when ready was created, or the required number of members existed at one time, its own included.
//   - Nobody waits for ever because others entered and left between two reads: if Enter can't tell what happened then, it returns
//     [session.ErrUncertain].
//   - A member of this process leaves only by Leave, or with its session. The end of trust ends the member's context and nothing
//     else.
//   - Leave returns nil when all members that entered with the caller have left. Leave does not wait for members that came later.
//   - No znode is orphaned, whatever reply is lost, whatever read after it is refused, and whenever a caller gives up: the znode
//     is deleted in the background, as soon as the server allows it, for as long as its session lives.
//   - A wait outlives lost connections and expired sessions, and an ACL that forbids to read the znode that is waited for.
//
// # Not guaranteed
//
//   - A process that was killed counts as a member until its session expires, and others may enter with it. If it is started
//     again before that, it counts as two members, because identifiers do not tell members apart. So do two processes with one
//     identifier that enter at once.
//   - kazoo's wait hangs after a lost connection, and misses that a barrier was removed when somebody sets its data. Nothing here
//     sets data.
//   - kazoo takes a ready that a crash left behind for a member, and for the signal to enter. Enter deletes it if no member
//     exists; a Python process that enters at the same moment may still take it for the signal, or wait for a signal that never
//     comes.
//   - That Enter always knows its outcome. The others may enter and leave within one of its round trips. Enter can't tell that
//     they did if it lost its connection meanwhile, and with it the watch on ready; if a member of the next round, or one that
//     joined and left, came in that time, too; or if the directory was deleted and created again. If it has seen the required
//     number of members before, it needs no watch. Enter returns the error after the read that does not answer the question. If
//     by then another member had joined that completes the required number, Enter returns the error after a later read, when that
//     member has left before it created ready.
//   - That the child which was created and deleted between two reads was ready. Enter is wrong if all members existed, and one
//     more process joined and died before ready was created.
//   - A Python process that enters again and again with one object uses its name again. Other processes that are slow to leave
//     may take it for the one that has not left yet: give each round a path of its own.
//   - kazoo's leave ends early when the member with the lowest name is killed.
//   - When two processes remove a barrier at the same moment, Remove returns true to both.
//
// # How Enter knows
//
// The member that completes the required number creates ready. All others wait for ready, as kazoo's do, even if they see all
// members: the member that creates ready may not have read the directory yet. Enter returns nil when it has read or created
// ready. It also returns nil when a watch, which it sets on ready before it creates its own znode, shows that ready was created,
// and the directory's cversion that no more children were created than the round needs. And it returns nil when the required
// number of members existed at one time, its own included, and the cversion shows that between two reads a child was created and
// deleted: Enter takes that child for ready. When its context ends while its znode exists, or may, it returns
// [session.ErrUncertain]: the others may see that znode, and enter, until it is deleted. The next Enter on the handle waits for
// the deletion.
//
// Leave deletes ready before its own znode, and nobody creates ready again. Only the first of several calls of Leave deletes the
// member's znode; the others wait.
//
// # Concurrency
//
// All methods may be called from any goroutine; a DoubleBarrier is one member, so it refuses a second Enter before the Leave of
// the first. All methods but New, NewDouble and the plain accessors block until their condition holds or their context ends. A
// member has one goroutine that watches its znode; the goroutine ends with the member's context. A member keeps the session open
// ([session.Session.KeepOpen]) until Leave returns.
package barrier
