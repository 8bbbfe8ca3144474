// Package counter implements kazoo's Counter: a number in one znode that processes add to. Python and Go processes can share one
// counter.
//
// # Overview
//
// [New] returns a counter of int64, [NewBig] one of integers of any size, [NewFloat] one of float64, and [NewCurator] one of the
// int32 of Curator's SharedCount. [Counter.Add] and [Counter.Subtract] change the number in one atomic step and return the new
// number.
//
// # State
//
//	<path>   persistent, never deleted; created when missing, with its parents, by the first change
//	         data: the number as Python's repr writes it ("-1", "2.1", "1e+16", "inf");
//	         Curator's: 4 bytes, big-endian, two's complement; empty data is the default
//
// The counter reads what Python's int and float read: white space around a number, and underscores between digits.
//
// # Guarantees
//
//   - A change that returns nil was made exactly once, on the number that [Counter.Last] returns as Pre.
//   - A change that returns an error was not made, unless the error wraps [session.ErrUncertain].
//   - After an unknown outcome a write is repeated only if the znode, after a Sync, is as it was read before. Otherwise the error
//     is [session.ErrUncertain].
//   - A number that does not fit is refused ([ErrRange]) and nothing is written.
//
// # Not guaranteed
//
//   - [Counter.Get] may return an old number: servers can be behind each other.
//   - kazoo repeats a change whose reply was lost without looking at the znode, so the change may count twice.
//   - A kazoo client can starve beside processes that change a counter without a pause: the pauses between its retries grow up to
//     an hour. Give it a command_retry with a small max_delay, or slow the other processes down.
//   - Python 3.11 and later refuse to read integers of more than 4300 digits.
//   - The sum of floats depends on the order of the additions.
//   - Two kinds of counters on one path: an integer counter refuses a float ([ErrValue]); a float counter reads an integer and
//     writes it back as a float.
//
// # Unknown outcomes
//
// That the znode has the number that was written proves nothing, because another process may have written the same number. If
// somebody deleted the znode and it was created again between the read and the write of a change, the change has replaced a
// number that it had not read: that is an ErrUncertain, too.
//
// # Concurrency
//
// Any goroutine may call any method. The methods block until ZooKeeper has answered or their context ends. A counter has no
// goroutines.
package counter
