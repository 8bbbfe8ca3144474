// Package sharedset keeps a set of strings in one znode, which kiel's Python members share: with the same JSON, the same lock and
// the same bytes.
//
// # Overview
//
// [Set.Run] watches the znode and publishes what it holds as immutable views: [Set.View] is the newest, [Set.Updates] waits for
// newer ones. [Set.Add] and [Set.Remove] change it, whether or not Run is running. A reader creates nothing.
//
// # State
//
//	<path>         persistent; data: a JSON array of strings, or nothing: the empty set
//	<path>/lock    kazoo's exclusive Lock, made by the first change
//
// A Set writes the bytes that Python's json.dumps makes of the sorted list: ", " between the items, all but printable ASCII
// escaped. It reads any JSON array of strings; order and duplicates do not matter.
//
// # Guarantees
//
//   - Changes of both languages don't overwrite each other.
//   - Add and Remove return nil only after the set was as asked for, also after a lost reply.
//   - Data that can't be read is never written over ([ErrUnreadable]); a set that would not fit a packet is not written
//     ([ErrTooLarge]).
//   - A change that changes nothing takes no lock and writes nothing.
//   - Run never misses the latest state, though it may skip some.
//   - If the data can't be read, the last good items stay in force, with View.Err set, until the znode is written with data that
//     can.
//
// # Not guaranteed
//
//   - Python kiel writes without a version. A Python member whose session expired while it held the lock can overwrite a change;
//     members that seed their items again repair that.
//   - A view is as new as the data of the server that the session is connected to, which may lack the newest write.
//   - An Add or Remove that returns session.ErrUncertain may have been done, or may be done until the session ends.
//
// # Reads and writes
//
// A change reads and writes under kazoo's Lock, as Python kiel does. It writes only if the set has the version that it read and
// its contender for the lock still exists. After a lost reply it reads the set after a Sync, and is repeated only if it is not
// there. Run reads again on each hint of its watch, on each new incarnation, and at least once per session timeout; while the
// znode does not change, it reads the znode's metadata only.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run uses its caller's goroutine alone. View never blocks. Add and Remove block
// until they are done, their context ends, or Options.LockTimeout passes without the lock; then the error is a
// *recipe.BlockedError that names the znode in the way.
package sharedset
