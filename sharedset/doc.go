// Package sharedset is a set of strings in one znode, shared with kiel's Python
// members: its JSON, its lock, its bytes.
//
// # Overview
//
// [Set.Run] watches the znode and publishes what it holds as immutable views:
// [Set.View] is the newest, [Set.Updates] waits for newer ones. [Set.Add] and
// [Set.Remove] change it, whether or not Run is running. A reader creates nothing.
//
// # State
//
//	<path>         persistent; data: a JSON array of strings, or nothing: the empty set
//	<path>/lock    kazoo's exclusive Lock, made by the first change
//
// Written are the bytes that Python's json.dumps makes of the sorted list: ", "
// between the items, all but printable ASCII escaped. Read is any JSON array of
// strings; order and duplicates mean nothing.
//
// # Guarantees
//
//   - Changes of both languages don't overwrite each other: a change reads and writes
//     under kazoo's Lock, as kiel does, and writes only the version that it read, on the
//     condition that its contender still stands.
//   - A change whose reply was lost is looked at after a Sync and made again only if it is
//     not there. Add and Remove return nil only after the set was as asked for.
//   - What can't be read is never written over ([ErrUnreadable]); what would not fit a packet
//     is not written ([ErrTooLarge]).
//   - A change that changes nothing takes no lock and writes nothing.
//   - The watch looks again on each hint, on each new incarnation, and at least once per
//     session timeout. It never misses the latest state, though it may skip some. While the
//     znode does not change it reads the znode's metadata only.
//   - Data that can't be read leaves the last good items in force, with View.Err set, until
//     a readable write comes.
//
// # Not guaranteed
//
//   - kiel writes without a version. One whose session expired while it held the lock can
//     overwrite a change; members that seed their items again repair that.
//   - A view is as new as the server that we are connected to, not as the newest write.
//   - An Add or Remove that returns session.ErrUncertain may have happened, or may happen until
//     the session ends.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run has one goroutine of its own, its caller's.
// View never blocks. Add and Remove block until they are done, their context ends, or the lock
// could not be had within Options.LockTimeout; then the error is a [*lock.BlockedError] that
// names the znode in the way.
package sharedset
