// Package session holds a ZooKeeper session, proves it alive, and says at every moment whether it may still be trusted.
//
// # Overview
//
// [Start] makes a [Session], which runs until [Session.Close]; with [New] it is the caller who runs it, in [Session.Run].
// It hands out incarnations: an [Incarnation] is one unbroken
// stretch of trust in one ZooKeeper session. Whatever is true only because of the session (membership, claims, locks)
// is to be held under [Incarnation.Context], and each effect that relies on it is to be preceded by
// [Incarnation.Trusted]:
//
//	s, err := session.Start(ctx, []string{"zk1", "zk2", "zk3"}, session.Options{})
//	…
//	defer s.Close(context.WithoutCancel(ctx))
//	inc, err := s.Incarnation(ctx)
//	…
//	path, err := inc.Create(inc.Context(), "/members/me", nil, session.Ephemeral)
//
// ZooKeeper tells a client that its session has expired only when the client reaches a server again. One that is cut
// off never hears it, while others see its ephemeral znodes gone. So the session keeps its own clock.
//
// # State
//
// The session writes nothing but its chroot, if there is one and it is missing. Every T/6 (T is the session timeout) it
// sends a proof of life: a multi of one check of [Options].CheckPath. That goes through the quorum, changes nothing and
// wakes nobody. Trust ends at
//
//	min(newest answered proof + 2/3 T, newest sign of life at least T/6 older than the newest + 5/6 T)
//
// counted from the moment of sending; signs of life are answered proofs and answered connect requests. While a connect
// request is unanswered trust ends no later than 2/3 of [Options].MinSessionTimeout after it was written. Elapsed time is
// the larger of what the monotonic and the wall clock say. An incarnation begins with the first proof whose answer leaves
// at least T/4, so that the next answer is in time: at once in a new ZooKeeper session, with the second proof after an
// outage in the same one.
//
//	connecting ──proof──► connected ◄──reconnect── suspended     still trusted, without a connection
//	                          │   ▲                    │
//	                          │   └─────next proof─────┤
//	                          ▼                        ▼
//	                        lost (same ZooKeeper session; a new incarnation follows, or the session has expired)
//
// # Guarantees
//
//   - While [Incarnation.Trusted] returns true, no server has ended the session, if T is at least three ticks, all servers
//     have the same tickTime and session timeout limits, and clocks run at the same rate up to T/6 in 5/6 T.
//   - Trusted, once false, stays false; the context ends right after, with cause [ErrTrustLost], [ErrSessionExpired] or
//     [ErrClosed].
//   - A request never runs in another ZooKeeper session than the one its incarnation belongs to. There is one client for
//     each ZooKeeper session, and a client that can't come back is replaced.
//   - Servers that have lost their data are found out after T: a client that was turned away for so long relies on nothing
//     any more; it no longer says what it has seen, and so is told whether its session is alive.
//   - [Incarnation.History] differs when the servers may have lost data since the incarnation before, in the same ZooKeeper
//     session too, as when they were restored from a backup: zxids and versions remembered from before mean nothing then.
//   - When proofs of life are answered with a refusal, another server is tried while trust lasts. When all are refused for 2 T
//     (an ACL was changed, or the credentials), the session is given up, and with it goes all that is ephemeral. Sessions are made and tried for as long as that lasts; once a proof is
//     accepted there is an incarnation again. A Session whose first proof is refused ends with [ErrAuthFailed] instead. Proofs
//     without an answer are no reason to give a session up.
//   - A write that returns anything but [ErrUncertain] was done, or was not and never will be. Reads are repeated until
//     answered.
//   - A watch wakes on a change, when the connection drops, when the incarnation ends, and after 4/5 T to T without any of
//     these, at random, so that members do not all read at once. The watch of [Incarnation.ChildrenLasting] waits for a
//     change, or the end of the connection or the incarnation, however long that takes. There is one on the server for each path and kind,
//     however often it is asked for.
//   - A server that sends garbage, or nothing, costs a connection and some time; never a panic or much memory. It has a
//     second to accept the connection and another to answer the handshake, longer where the path is slow or all servers
//     were too slow, but never more than T/4 each, or 2/3 T while there is no incarnation. Only what answers a read of
//     data, of children or of an ACL may be large, up to 16 MiB of what was really sent.
//   - Run, Close and a Start that fails leave no goroutine behind. (The exception is a dialer given by the user that does not end with its context.)
//
// # Not guaranteed
//
//   - Trust when all servers lose their data at once, or when the machine is stopped from outside, all clocks with it.
//   - That what was checked with Trusted is still so when the effect happens: a process can be stopped in between. Only
//     a token checked where the effect happens closes that gap.
//   - That a wrong password is noticed, if everybody may read [Options].CheckPath.
//
// # Concurrency
//
// Every method of Session, Incarnation and Watch may be called from any goroutine. Blocking calls end with their context,
// with the ZooKeeper session, and with Run; Close ends only when the session has, and its context ends the waiting for
// holders. A context that ends after a write was sent ends the waiting only: the error
// is then ErrUncertain. At most 512 requests are in flight; more wait. The session calls nobody's code but
// [Options].Dial and [Options].Logger.
package session
