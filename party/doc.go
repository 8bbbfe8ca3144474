// Package party keeps the directory of a group's members in ZooKeeper, in the form that the Python library kiel uses for its
// groups.
//
// # Overview
//
// A [Party] watches the directory and publishes its members as a [View]. A Party with a name is a member itself: it joins when
// Run starts, again in every new ZooKeeper session and whenever somebody has deleted its znode, and leaves when Run's context
// ends. A Party without a name only observes.
//
// [KazooParty] and [ShallowParty] are kazoo's recipes of these names, with znodes of their own kind; the rest of this page is
// about Party.
//
// # State
//
//	<path>           persistent, empty; created when missing, parents too
//	<path>/<name>    ephemeral, one per member; the name verbatim
//
// A member's znode may hold a record of up to 64 KiB, which the other members read with it. A record never changes in place: a
// member with a new record joins anew. Empty data means no record; Python members have none.
//
// # Guarantees
//
//   - Every child of the directory is a member, whatever its name and its record, because Python members count them all.
//   - A view shows the members of one moment, with their records of that moment or later. It is not older than the Party's own
//     joining, because a session reads its own writes.
//   - Each change of the members leads to a new view, even if a member
//     left and joined again under the same name, if a watch was lost, or if the connection
//     broke: the Party reads the directory's metadata at least once per
//     session timeout, and lists the members again when the metadata differ. Changes
//     that follow each other closely may lead to one view.
//   - A Party forgets what it knows of members when servers may have lost data, also when they were restored from a backup that
//     still has the Party's session ([session.Incarnation.History]): such servers give the same numbers again.
//   - A Party never deletes a znode that another session owns. If such a znode has the Party's name, the Party waits until the
//     znode is deleted, for as long as a dead session's znode can stay ([session.Session.MaxExpiry], some 45 s, because the
//     timeout of that session may have been longer). The wait begins anew after each reconnect, because a new leader gives the
//     dead session its whole timeout again. If the znode is still there after the wait, Run ends with [ErrNameTaken]. Meanwhile
//     [View].NameHeld and a line of the log say which session holds the name. If another session replaces the Party's own znode,
//     as a Python member of the same name does, Run ends with ErrNameTaken at once.
//   - A member that [Options].Admit refuses does not join, and is in no view of its own. If members come while it joins, it leaves
//     again before it publishes a view with them; others may see it for a moment.
//   - Once the Party has joined, or an observer has read the members, nothing that the servers refuse ends Run: an ACL or a quota
//     may be wrong for a while. [View].Err says what is refused, and the Party tries again.
//   - While the connection is gone but the session lives, the znode exists and the Party stays a member, with the same znode when
//     it is connected again.
//   - When Run has returned, the Party's znode is deleted, or is deleted when the ZooKeeper session ends, if the servers could
//     not be reached in time.
//
// # Not guaranteed
//
//   - That a member joins after a crash if the servers had granted its old session more than [session.Options].MaxSessionTimeout,
//     40 s, and more than its new session: Run ends with [ErrNameTaken] then, before the old session has expired. The same may
//     happen when a server comes back meanwhile that was down when the old session began: the server catches up, and that gives
//     the session its timeout again. There is time for one such server if MaxSessionTimeout is three times the timeout or more,
//     as it is by default.
//   - That a view is up to date. Its [session.Incarnation] says whether a program may act on it.
//   - That members see the same views at the same time, or that each sees all views.
//   - That a record changed in place by somebody else is noticed soon. No Party writes a record a second time, so names and the
//     directory's cversion show all changes, and records need no watch: a member has one watch instead of one for each other
//     member. A Party reads 16 records in turn each time that it looks at the directory and nothing is new, which is at least
//     once per session timeout. So other members may go by the changed record for as many session timeouts as there are members
//     divided by 16. The record's owner reads its own record each time, and joins anew with the right one.
//   - That two parties in one process keep apart when they use the same session, path and name: they share the znode. Don't do
//     that.
//   - That leaving never deletes a namesake's znode. ZooKeeper can't delete a znode "if it is mine": between reading the owner
//     and deleting lies one round trip. If somebody deletes the Party's znode in that time and a namesake joins, leaving deletes
//     the namesake's znode. If the namesake is a Party it joins again by itself; a Python member does not.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run is the one goroutine that reads and writes ZooKeeper; it runs no user code.
// View never blocks. Updates wakes on a new view; a slow reader delays nothing.
package party
