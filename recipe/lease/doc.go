// Package lease is kazoo's NonBlockingLease and MultiNonBlockingLease (kazoo.recipe.lease):
// a record in a znode says who may do something, and until when. Whoever does not get it
// does not wait. Python and Go processes can share one.
//
// # Overview
//
// [NonBlockingLease.Obtain] returns a [Held], or an error that wraps [ErrNotObtained]. The
// context of the hold ends before the lease does. [Held.Renew] extends it, [Held.Release]
// gives it back, [Held.Detach] leaves it to run out, as kazoo always does: a job
// that is done keeps its lease, so that the next run falls to the same host. [NonBlockingLease.Do] does all that
// around a function.
// [MultiNonBlockingLease] has several slots of which each can be leased.
//
// A lease is there to outlive connections, sessions and processes. Where it need not, a
// lock (package lock) is safer: it does not compare clocks.
//
// # State
//
//	<path>                            persistent, empty, made when missing, never deleted
//	<path>/lease_holder               persistent: the record
//	<path>/<guid>__lock__<sequence>   a contender of the inner lock, see package lock; data: the identifier
//	<path>/<n>                        the path of slot n of a MultiNonBlockingLease
//
// The record is JSON, byte for byte as Python writes it; the end is in UTC, its fraction of
// a second cut off:
//
//	{"version": 1, "holder": "host-7", "end": "2026-03-01T12:00:00"}
//
// # Guarantees
//
// Tolerated is a difference of [Options].Skew between the clocks of any two that use a lease.
//
//   - At most one identifier has a hold whose context has not ended, as long as clocks
//     agree so far, and all others keep to the inner lock. Several of one identifier: see below.
//   - That context ends at the written end less the skew, or when as much time has passed
//     on the monotonic clock, whichever is earlier ([ErrExpired]). It does not end with
//     the session nor with trust in it.
//   - It ends when the record is not the one that we wrote any more ([ErrLost]), as seen by
//     a watch, and by a look once per session timeout. That covers kazoo's own races: one that
//     was stalled between its requests can write without the inner lock.
//   - Who takes a lease over from another with its identifier, which may be cut off, does not shorten
//     it: what it writes ends no earlier, and its release gives the record back the end that it
//     had, instead of removing it.
//   - Nothing is obtained or renewed while the local clock differs from that of ZooKeeper's
//     leader by more than half the skew ([ErrClockSkew]), so two of us never differ by more
//     than the skew. A given clock ([Options].Now) is not compared.
//   - Obtain, Renew and Release read and write under the inner lock, and what they write
//     sets our own contender, too: a request that comes late changes nothing. What is written does
//     not end with its caller's context; what became of it is found out when it is not under way any more.
//   - When a try fails or its context ends, and it may have written the record, the record is
//     removed in the background, unless it stood for our identifier before. A record with the same
//     bytes, which another with our identifier writes within the same second, is told apart by
//     its zxid: it is neither removed nor taken for a renewal of ours.
//   - A release removes our own record only, never that of who came after.
//   - Tokens grow from hold to hold: [Held.Token] is the mzxid of the record.
//   - A record of another version, or one that can't be read, is never written over.
//
// # Not guaranteed
//
//   - kazoo does not compare clocks, uses its whole lease, and takes over at its end by
//     its own clock. Beside Python the exclusion is as good as its host's clock.
//   - kazoo's default identifier is the host name. All that have one identifier obtain the
//     lease together; of those here only the newest keeps its hold, as soon as the others see
//     its record.
//   - When the session ends before the outcome of a write is known, and others had or wanted the
//     inner lock since, it can't be told whose a record with our bytes is. That of a try stays until
//     its end. That of a renewal counts as ours, but does not extend the hold, and Release leaves it
//     and says so; two of one identifier can then have a hold until the older one's end.
//   - That nothing is written after a call was given up. The record of a try can still be, once a
//     server is reached again, and is removed then; the removal, or the earlier end, of a Release
//     is. Both happen under the inner lock of that call or a later one, and change no record of
//     anybody else. Until then, or to its end if Run ends or the process dies before, a record
//     that nobody relies on holds others off: for [Options].Duration after the call at most, or
//     to the end of a lease that was taken over.
//   - A clock that is set between two looks is noticed with the next, a second later. [Held.Valid]
//     looks at once.
//   - What a process does that was stopped after it looked at the context.
//   - Non-blocking means that nobody waits for the lease. Obtain does wait for the inner
//     lock, as kazoo does, for as long as its context lasts; a stuck contender is named
//     by the error, a [*recipe.BlockedError].
//   - As in kazoo, ObtainAny can leave one holder two slots: a lower one that has become
//     free, and its old one until that ends. Renew keeps to one.
//
// # Concurrency
//
// All methods may be called from any goroutine; those of one handle that write take
// turns. Do calls its function on the goroutine that called it, one at a time on a handle. A call that writes has
// one goroutine. That ends with the call, or carries the write that the call has left to its end. A hold has two goroutines, which
// end with it. A hold keeps the session open ([session.Session.Hold]) until it has ended and, if it was released, the record is gone.
package lease
