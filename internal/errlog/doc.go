// Package errlog coalesces the errors of one kind in a log. It logs the first at once. While the kind goes on failing, at most
// one line in an [Interval] has the number of errors since the last line. When all that failed works again, one line has the time
// that it took.
//
// The lines:
//
//	level=ERROR msg=failed kind=fetch about=orders:7 error="…"
//	level=ERROR msg="still failing" kind=fetch about=orders:9 error="…" count=43 failing=9 lasts=10.2s
//	level=INFO msg=recovered kind=fetch after=58.1s errors=260
//	level=ERROR msg=failed kind="panic in handler" about=orders:7 error="…" stack="…"
//
// One kind may explain others (Explains), as that Kafka is out of reach explains that nothing is fetched: while it fails, only
// its own line is repeated.
//
// A kind that recovers and fails again and again has four lines about a new start in an Interval, and more only of a higher
// level. Further errors are postponed. When the Interval is over, the last one of the highest level is logged.
//
// A Log has no goroutine and no timer: the call that brings the next error, or the success, writes the line. A call for any kind
// writes the lines that were postponed.
package errlog

// MaxLines is how many partitions that change at once have lines of their own at level Info. Above that each has its line at
// Debug, and the allocator's line has their number.
const MaxLines = 16
