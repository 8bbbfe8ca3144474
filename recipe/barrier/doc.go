// Package barrier is kazoo's Barrier and DoubleBarrier: a gate that one opens for all,
// and a door through which a number of processes go in together and out together.
// Python and Go processes can share one.
//
// # Overview
//
// A [Barrier] stands from [Barrier.Create] to [Barrier.Remove]; [Barrier.Wait] waits
// until it is gone.
//
// A [DoubleBarrier] has a number of members. [DoubleBarrier.Enter] waits until that many
// have come, and returns a [Member]; [Member.Leave] waits until all have left. The
// member's context ends when it is not sure to be counted any more.
//
// # State
//
//	<path>           Barrier: persistent, empty; the barrier is closed while it stands
//
//	<path>           DoubleBarrier: persistent, empty, made when missing, never deleted
//	<path>/<guid>    a member: ephemeral, data: its identifier in UTF-8
//	<path>/ready     persistent, empty: made by the member that completes the number,
//	                 deleted by each that begins to leave
//
// The GUID is new for each Enter; kazoo takes one for each of its objects. Every child but
// ready is a member, whatever its name.
//
// # Guarantees
//
//   - Create returns nil only when a barrier stood at some time after it was called.
//   - Wait returns nil only when the barrier that it saw is gone, or none stood after it
//     was called. One that is removed and set up again between two looks counts as gone.
//   - Enter returns nil only when ready was seen or made, or when the number stood, ours among it,
//     and something came and went unseen since: that was ready. The one that completes the number
//     makes it, and all others wait for that, as kazoo's do, even if they see the number: it may
//     not have looked yet. Nobody waits for ever because others came and left too quickly to be
//     seen: where what happened between two looks can't be told, the error is [session.ErrUncertain].
//     So it is when Enter's context ends while our znode stands, or may: the others may see it, and
//     enter, until it is removed.
//   - A member of ours leaves only when it calls Leave, or with its session. The end of
//     trust ends its context and nothing else.
//   - Leave returns nil when all members with which the caller entered have left. It does not
//     wait for those that came later. It deletes ready before its own znode, and nobody makes
//     ready again.
//   - No member is orphaned, whatever reply is lost, whatever look after it is refused, and
//     whenever a caller gives up: it is removed in the background, as soon as the server lets
//     us, for as long as its session lives. The next Enter on the handle waits for that.
//   - Of several calls of Leave the first decides when our znode goes. The others only wait.
//   - A wait outlives lost connections and expired sessions. That an ACL does not let us read what
//     is in the way hides its data only.
//
// # Not guaranteed
//
//   - A process that was killed counts as a member until its session expires, and others may enter
//     with it. If it is started again before that, the two count as two: identifiers don't tell who is
//     who. So do two with one identifier that enter at once.
//   - kazoo's wait hangs after a lost connection, and misses that a barrier was removed when
//     somebody sets its data. Nothing here sets data.
//   - kazoo takes a ready that was left behind by a crash for a member and for the signal. Enter
//     removes it if no member stands; a Python process that comes in at the same moment
//     may take it for the signal all the same, or wait for one that never comes.
//   - That Enter is never uncertain: when all is over for some before the look of another, which
//     takes some round trips, that one can't tell, unless it has seen the number before. With two
//     members that takes one who came and went between the making of our znode and our first look
//     after it. That look says so, or a later one: when another had come by then that completes the
//     number, and is gone before it has made ready. It also can't tell when the directory was
//     deleted and made anew.
//   - That what came and went unseen was ready. If a process dies that has come as well, after the
//     number was complete and before ready was made, who looks at that moment takes it for ready.
//   - A Python process that enters again and again with one object uses its name again. Others
//     that are slow to leave may take it for the one that has not left yet: give each round a
//     path of its own.
//   - kazoo's leave ends early when the first of the leavers is killed.
//   - Remove reports a barrier that another removes at the same moment as its own.
//
// # Concurrency
//
// All methods may be called from any goroutine; a DoubleBarrier is one member, so a second
// Enter before the Leave of the first is refused. All methods but New, NewDouble and the
// plain accessors block until their condition holds or their context ends. A member has one
// goroutine that watches its znode; it ends with the member's context. A member keeps the
// session open ([session.Session.Hold]) until Leave returns.
package barrier
