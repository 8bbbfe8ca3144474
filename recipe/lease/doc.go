// Package lease implements kazoo's NonBlockingLease and MultiNonBlockingLease (kazoo.recipe.lease): a record in a znode says who
// may do something, and until when. A caller that does not get the lease does not wait for it. Python and Go processes can share
// one lease.
//
// # Overview
//
// [NonBlockingLease.Obtain] returns a [Held], or an error that wraps [ErrNotObtained]. The context of the Held ends before the
// lease does. [Held.Renew] extends the lease, [Held.Release] gives it back, and [Held.Detach] leaves it to run out, as kazoo
// always does: a finished job keeps its lease, so that the next run falls to the same host. [NonBlockingLease.Do] does all that
// around a function. [MultiNonBlockingLease] has several slots, each of which can be leased.
//
// A lease can outlive connections, sessions and processes. Where that is not needed, a lock (package lock) is safer: a lock does
// not compare clocks.
//
// # State
//
//	<path>                            persistent, empty, created when missing, never deleted
//	<path>/lease_holder               persistent: the record
//	<path>/<guid>__lock__<sequence>   a contender of the inner lock, see package lock; data: the identifier
//	<path>/<n>                        the path of slot n of a MultiNonBlockingLease
//
// The record is JSON, byte for byte as Python writes it. Its end is in UTC, without the fraction of a second:
//
//	{"version": 1, "holder": "host-7", "end": "2026-03-01T12:00:00"}
//
// # Guarantees
//
// The clocks of any two processes that use a lease may differ by [Options].Skew.
//
//   - At most one identifier has a hold whose context has not ended, as long as clocks agree so far and all others keep to the
//     inner lock. For several processes with one identifier, see below.
//   - A hold's context ends at the written end less the skew, or when as much time has passed on the monotonic clock, whichever
//     is earlier ([ErrExpired]). It does not end with the session or with trust in it.
//   - The context also ends when the record is not the one that the handle has written ([ErrLost]), as seen by a watch and by a
//     read once per session timeout. That covers kazoo's own races: a Python process that was stalled between its requests can
//     write without the inner lock.
//   - A handle that takes a lease over from another with its identifier, which may be cut off, does not shorten it: the new
//     record ends no earlier, and a release gives the record back the end that it had, instead of removing it. A renewal does not
//     shorten a lease either, also when the clock was set back.
//   - Nothing is obtained or renewed while the local clock differs from that of ZooKeeper's leader by more than half the skew
//     ([ErrClockSkew]), so two handles never differ by more than the skew. A clock in [Options].Now is not compared.
//   - Obtain, Renew and Release read and write under the inner lock, and each write also sets or checks the handle's contender: a
//     request that comes late changes nothing once the contender is gone.
//   - The lease fails closed. A write of unknown outcome ([session.ErrUncertain]: the connection was lost, or the caller's
//     context has ended during the write) has not obtained the lease, and has not extended it; the hold that was to be extended
//     lasts as long as before. The next call with the same identifier takes the record over at once. Other identifiers wait for
//     the end of the record. A call that fails otherwise has written nothing, unless its time, or its hold, was over meanwhile.
//   - A release removes the handle's own record only, never the record of a later holder.
//   - The removal by a release outlasts what the servers refuse, as by an ACL that is wrong for a while, until the record blocks
//     nobody any more. Other calls return a refusal to their caller.
//   - Tokens grow from hold to hold: [Held.Token] is the mzxid of the record.
//   - A record of another version, or one that can't be read, is never written over.
//
// # Not guaranteed
//
//   - kazoo does not compare clocks, uses its whole lease, and takes a lease over at its end by its own clock. Beside Python the
//     exclusion is as good as the clock of Python's host.
//   - kazoo's default identifier is the host name. All processes with one identifier obtain the lease together; among Go
//     processes only the newest keeps its hold, as soon as the others see its record.
//   - A record that was or may have been written by a call of unknown outcome blocks others to its end: for [Options].Duration
//     after the call at most, or to the end of a lease that was taken over. Nobody removes it before, also if the handle takes it
//     over and releases it: another process with the same identifier may write the same bytes within the same second, and rely on
//     them. Two processes with one identifier can then have a hold until the older one's end.
//   - When the servers took longer than the lease lasts ([ErrExpired]), the record stays to its end, too.
//   - A release whose context has ended goes on in the background. Until then, or to the record's end if Run ends or the process
//     dies before, the record blocks others without a holder.
//   - A clock that is set is noticed by the next comparison, up to a second later. [Held.Valid] compares at once.
//   - A process that checks the context and is stopped before its next step can act after its lease went to another.
//   - Nobody waits for the lease, but Obtain does wait for the inner lock, as kazoo does, for as long as its context lasts. The
//     error names a stuck contender: it is a [*recipe.BlockedError].
//   - As in kazoo, ObtainAny can leave one holder two slots: a lower one that has become free, and its old one until that ends.
//     Renew keeps to one.
//
// # Concurrency
//
// Any goroutine may call any method; the calls of one handle that write take turns. Do calls its function on the goroutine of its
// caller, one function at a time on a handle. A release has one goroutine until the record is gone. A hold has two goroutines,
// which end with it. A hold keeps the session open ([session.Session.KeepOpen]) until it has ended and, if it was released, the
// record is gone.
package lease
