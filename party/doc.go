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
//	<records>        persistent, empty; the directory Options.Records, if there is to be one
//	<records>/<hash>.<session>.<name>  ephemeral, one per member that knows of the directory: its entry; data: Options.Info
//
//	<Static.Guard>   persistent, one for each static name: who has the name, in JSON; never deleted
//
// A static member's znode is written once more in the transaction that creates it: its version is never 0, as others' are.
//
// A member's znode may hold a record of up to 64 KiB, which the other members read with it. A record never changes in place: a
// member with a new record joins anew. Empty data means no record; Python members have none.
//
// # Records by their hash
//
// A member creates its znode and its entry in one transaction, and deletes both in one. The entry's name has the first 160 bits
// of the record's SHA-256, in 27 characters of base64url; the id of the member's ZooKeeper session, in hexadecimal digits without
// zeros in front; and the member's name, verbatim. So the lists of two directories say which member has which record, and a
// record is read once, from any one member that has it:
//
//   - What is read is compared with the hash. A Party asks all members whose entries have the hash until the record of one fits.
//     If none does, it reads each of them, as it reads members without an entry or with two, such as Python members and those of
//     earlier versions.
//   - Entries whose names are something else, and those of names that are not in <path>, count for nothing.
//   - A Party reads its own znode, and none of those that it knows by their hash: Czxid, Mzxid and Ctime of a [Member] are 0
//     then, and its Session is what the entry says. With [Options].Singly it reads all of them while they matter.
//   - A change of either directory leads to a new listing of both. The members are listed first: one that joins in between is in
//     no view yet, and both watches show that; one that leaves in between is looked for, and is gone.
//   - Records that were read are known in the next session, too: a hash does not depend on the servers.
//   - If the servers refuse the directory, by an ACL or a quota, the members join without entries and read each other. They try
//     again once per session timeout, and the log says so. A member puts its entry right as often.
//
// # Guarantees
//
//   - Every child of the directory is a member, whatever its name and its record, because Python members count them all.
//   - A view shows the members of one moment, with their records of that moment or later. It is not older than the Party's own
//     joining.
//   - Each change of the members leads to a new view, within a session timeout at the latest: also if a member left and joined
//     again under the same name (but not in the same session with the same record, if that is known by its hash), if a watch was
//     lost, or if the connection broke. Changes that follow each other closely may lead to one view.
//   - A Party forgets what it knows of members when servers may have lost data ([session.Incarnation.History]).
//   - A Party never deletes a znode that another session owns. While such a znode has the Party's name, the Party waits for
//     [session.Session.MaxExpiry], some 45 s; then, or when another session replaces the Party's own znode, Run ends with
//     [ErrNameTaken].
//   - A static member ([Options].Static) takes the place of its former process in one transaction, so that no view lacks the
//     name. Of two that take a name at the same time one gets it. A member that is not static is never taken over.
//   - A member that [Options].Admit refuses does not join, and is in no view of its own.
//   - Once the Party has joined, or an observer has read the members, nothing that the servers refuse ends Run: an ACL or a quota
//     may be wrong for a while. [View].Err says what is refused, and the Party tries again.
//   - While the connection is gone but the session lives, the Party stays a member, with the same znode when it is connected
//     again.
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
//   - That an entry is its member's. It may outlast a znode that somebody else has deleted or replaced, until the member that
//     made it notices that, or its session has expired. If an ACL allows to create entries and not to delete them, it outlasts
//     its member until that session ends; a member of that name without an entry then counts with the record of the former one.
//     Two records with one hash take 2^80 tries to find. Whoever may write into the directories can make members compute
//     different mappings, with entries or without.
//   - That a record changed in place by somebody else is noticed by others if the member has an entry: they go on with what they
//     have read. The member itself notices within a session timeout.
//   - That such a record of a member without an entry is noticed soon: other members may go by it for as many session timeouts as
//     there are members divided by 16.
//   - That two parties in one process keep apart when they use the same session, path and name: they share the znode. Don't do
//     that.
//   - That leaving never deletes a namesake's znode. ZooKeeper can't delete a znode "if it is mine": between reading the owner
//     and deleting lies one round trip. If somebody deletes the Party's znode in that time and a namesake joins, leaving deletes
//     the namesake's znode. If the namesake is a Party it joins again by itself; a Python member does not.
//
// # How changes are noticed
//
// A session reads its own writes, so no view is older than the Party's joining. The Party reads the directory's metadata at least
// once per session timeout, and lists the members again when the metadata differ. Servers that were restored from a backup may
// still have the Party's session and give the same numbers again, so nothing that was read before counts then.
//
// No Party writes a record a second time, so names and the directory's cversion show all changes, and records need no watch: a
// member has one watch instead of one for each other member. A Party reads 16 records in turn each time that it looks at the
// directory and nothing is new. A record's owner reads its own record each time, and joins anew with the right one.
//
// # Names that are held
//
// A dead session's znode can stay for MaxExpiry, because the timeout of that session may have been longer. The wait begins anew
// after each reconnect, because a new leader gives the dead session its whole timeout again. Meanwhile [View].NameHeld and a line
// of the log say which session holds the name.
//
// If the former process of a static member has not marked its end ([Party.Keep]), it may live: the take-over then counts, and the
// next one of that sort waits, 1 s and twice as long each time. A static member whose znode another one has taken over is in its
// own view no more ([View].Joined), waits in the same way, and says so in [View].NameHeld.
//
// If members that Admit refuses come while a member joins, it leaves again before it publishes a view with them; others may see
// it for a moment.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run is the one goroutine that reads and writes ZooKeeper; it runs no user code.
// View never blocks. Updates wakes on a new view; a slow reader delays nothing.
package party
