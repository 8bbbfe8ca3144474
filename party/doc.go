// Package party keeps a directory of members in ZooKeeper, the one that the
// Python library kiel keeps for its groups.
//
// # Overview
//
// A [Party] watches the directory and says who is in it, as a [View]. With a
// name it is a member itself: it joins when Run starts, again in every new
// ZooKeeper session and whenever somebody deleted its znode, and leaves when
// Run's context ends. Without a name it only observes.
//
// [KazooParty] and [ShallowParty] are kazoo's recipes of these names, with znodes
// of their own kind; what follows is about Party.
//
// # State
//
//	<path>           persistent, empty; made when missing, parents too
//	<path>/<name>    ephemeral, one per member; the name verbatim
//
// A member's znode may hold a record of up to 64 KiB that the others read with
// it. A record never changes in place: who has another one to show joins anew.
// Python members have none.
//
// # Guarantees
//
//   - Every child of the directory is a member, whatever its name and its
//     record, because Python members count them all.
//   - A view is what ZooKeeper held at one moment or later, and not older than
//     our own joining: a session sees its own writes.
//   - Each change of the members ends in a new view, also that of a member who
//     went and came back under the same name, by a lost watch and a broken
//     connection too: the directory's metadata are looked at at least once per
//     session timeout, and the members are listed again when they differ. Changes
//     that follow each other closely may end in one view.
//   - What is remembered of members is forgotten when servers may have lost
//     data, also when they were restored from a backup that still has our
//     session ([session.Incarnation.History]): numbers come again there.
//   - A znode that another session owns is never deleted. Where one bears our
//     name we wait for it to go for as long as a dead session's can stay
//     ([session.Session.MaxExpiry], some 45 s: its timeout may have been longer than
//     ours), anew after each reconnect, because a new leader gives it that time
//     again; and end with [ErrNameTaken] if it does not. Meanwhile [View].NameHeld
//     and a warning tell which session holds the name. If our own znode was replaced by another
//     session's, which is what a Python member of our name does, that is
//     ErrNameTaken at once.
//   - While the connection is gone but the session lives, the znode stands and
//     we stay a member; back in the same session it is still the same znode.
//   - When Run has returned, our znode is gone, or goes with the ZooKeeper
//     session when the servers could not be reached in time.
//
// # Not guaranteed
//
//   - That a member joins after a crash if the servers had granted its old session
//     more than [session.Options].MaxSessionTimeout, 40 s, and more than its new one:
//     it ends with [ErrNameTaken] then, before the old session has expired.
//   - That a view is up to date. Whether it may be acted on is for its
//     [session.Incarnation] to say.
//   - That members see the same views at the same time, or all of them.
//   - That a record changed in place by somebody else is noticed soon. No
//     Party writes one a second time, so names and the directory's cversion
//     tell all changes, and records need no watch: one watch a member instead
//     of one for each pair of them. Records are looked at in turn, 16 each
//     time that the directory is looked at and nothing is new, which is at least
//     once per session timeout, so others may go by the changed one for as
//     many session timeouts as there are members divided by 16. Its owner
//     looks at its own each time, and joins anew with the right one.
//   - That two parties in one process keep apart when they use the same
//     session, path and name: they share the znode. Don't.
//   - ZooKeeper can't delete a znode "if it is mine". Between looking at the
//     owner and deleting lies one round trip; if in it somebody deletes our
//     znode and a namesake joins, leaving deletes the namesake's. A Party then
//     joins again by itself, a Python member does not.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run is the one goroutine that
// reads and writes ZooKeeper; it runs no code of the user. View never blocks;
// Updates wakes on a new view and holds nothing up, however slow its reader.
package party
