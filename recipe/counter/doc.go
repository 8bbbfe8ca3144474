// Package counter is kazoo's Counter: a number in one znode that processes add to.
// Python and Go processes can share one.
//
// # Overview
//
// [New] counts in int64, [NewBig] in integers of any size, [NewFloat] in float64, and
// [NewCurator] in the int32 of Curator's SharedCount. [Counter.Add] and
// [Counter.Subtract] change the number in one atomic step and return the new one.
//
// # State
//
//	<path>   persistent, never deleted; made when missing, with its parents, by the first change
//	         data: the number as Python's repr writes it ("-1", "2.1", "1e+16", "inf");
//	         Curator's: 4 bytes, big-endian, two's complement; empty is the default
//
// What Python's int and float read is read: white space around a number, and
// underscores between digits.
//
// # Guarantees
//
//   - A change that returns nil was made exactly once, on the number that [Counter.Last]
//     gives as Pre.
//   - A change that returns an error was not made, unless that is [session.ErrUncertain].
//     That is also the error when somebody deleted the znode and it was made again between a
//     change's reading and writing, as then the number was written over one that was not read.
//   - What may have been done is repeated only when, after a Sync, the znode is as it was
//     read before. Otherwise the error is [session.ErrUncertain]: that the number is the
//     one we wrote proves nothing, because another may have written the same.
//   - A number that does not fit is refused ([ErrRange]) and nothing is written.
//
// # Not guaranteed
//
//   - [Counter.Get] may return a number that is behind by what servers are behind each other.
//   - kazoo repeats a change whose reply was lost without looking; it may count twice.
//   - kazoo does not come to its turn beside processes that change a counter without a
//     pause: its retries back off up to an hour. Give it a command_retry with a small
//     max_delay, or pace the others.
//   - Python 3.11 and later refuse to read integers of more than 4300 digits.
//   - Floats that are added in another order have another sum.
//   - Two kinds of counters on one path: a float is refused by an integer counter
//     ([ErrValue]); an integer is read by a float counter and written back as a float.
//
// # Concurrency
//
// All methods may be called from any goroutine. They block until ZooKeeper has answered
// or their context ends. A counter has no goroutines.
package counter
