// Package session keeps a ZooKeeper session, proves it alive, and knows at every moment whether it may still be trusted.
//
// # Overview
//
// [Start] makes a [Session], which runs until [Session.Close]. A program that uses [New] instead runs the Session itself, with
// [Session.Run]. A Session returns incarnations: an [Incarnation] is one unbroken stretch of trust in one ZooKeeper session.
// Whatever is true only because of the session (membership, claims, locks) must live under [Incarnation.Context], and each effect
// that relies on it must be preceded by [Incarnation.Trusted]:
//
//	s, err := session.Start(ctx, []string{"zk1", "zk2", "zk3"}, session.Options{})
//	…
//	defer s.Close(context.WithoutCancel(ctx))
//	inc, err := s.Incarnation(ctx)
//	…
//	path, err := inc.Create(inc.Context(), "/members/me", nil, session.Ephemeral)
//
// ZooKeeper tells a client that its session has expired only when the client reaches a server again. A client that is cut off
// does not learn it, while others see that its ephemeral znodes are gone. So a Session decides by its own clock.
//
// # State
//
// A Session writes nothing but its chroot, if it has one that is missing. Every T/6 (T is the session timeout) it sends a proof
// of life: a multi of one check of [Options].CheckPath, which goes through the quorum, changes nothing and wakes no watch. Signs
// of life are answered proofs and answered connect requests. Each counts from the moment when it was sent. Let p be the newest
// answered proof, and s the newest sign of life that is at least T/6 older than the newest sign of life; if there is none, s is
// the oldest that is known. Trust ends at
//
//	min(p + 2/3 T, s + 5/6 T)
//
// While a connect request is unanswered, trust ends no later than 2/3 of [Options].MinSessionTimeout after the request was
// written. Elapsed time is the larger of what the monotonic and the wall clock say. An incarnation begins with the first proof
// whose answer leaves at least T/4 of trust, so that the next answer is in time: in a new ZooKeeper session that is the first
// proof, after an outage in the same session the second.
//
//	connecting ──proof──► connected ◄──reconnect── suspended     still trusted, without a connection
//	                          │   ▲                    │
//	                          │   └─────next proof─────┤
//	                          ▼                        ▼
//	                        lost (same ZooKeeper session; a new incarnation follows, or the session has expired)
//
// # Guarantees
//
//   - While [Incarnation.Trusted] returns true, no server has ended the session, if T is at least three ticks, all servers have
//     the same tickTime and session timeout limits, and clocks run at the same rate up to T/6 in 5/6 T.
//   - Trusted, once false, stays false. The context ends right after, with cause [ErrTrustLost], [ErrSessionExpired] or
//     [ErrClosed].
//   - A request never runs in another ZooKeeper session than that of its incarnation.
//   - A write that returns anything but [ErrUncertain] was done, or was not and never will be. Reads are repeated until they are
//     answered.
//   - Each ZooKeeper session that is over is closed if a server can be reached, except one that [Session.LetExpire] leaves to its
//     timeout.
//   - A loss of the servers' data is noticed after T. [Incarnation.History] differs when the servers may have lost data since the
//     incarnation before.
//   - A session whose proofs of life are all refused for 2 T is given up, which deletes its ephemeral znodes. New ones are tried
//     for as long as that lasts. A Session whose first proof is refused ends with [ErrAuthFailed].
//   - [DataWatches] report each change of thousands of znodes, and nothing else.
//   - A watch wakes on a change, when the connection drops, when the incarnation ends, and after 4/5 T to T without any of these.
//     The watch of [Incarnation.ChildrenLasting] does not wake by time.
//   - A server that sends garbage, or nothing, costs a connection and some time; never a panic or much memory.
//   - A write that is larger than the servers' jute.maxbuffer costs three connections; then writes of its size are refused with
//     [ErrCostsConnection] before they are sent.
//   - Run, Close and a Start that fails leave no goroutine behind, unless [Options].Dial does not return when its context ends.
//
// # Not guaranteed
//
//   - That trust is right when all servers lose their data at once, or when the machine is stopped from outside together with all
//     its clocks.
//   - That what Trusted has checked is still so when the effect happens: the process can be stopped in between. Only a fencing
//     token that is checked where the effect happens closes that gap.
//   - That a wrong password is noticed, if everybody may read [Options].CheckPath.
//
// # Servers that lose data, refuse, or misbehave
//
// Each ZooKeeper session has one client, and a client that can't reconnect is replaced. A client whose connections were refused
// for T relies on nothing that it has read; it connects with zxid 0, because a server with an older zxid would refuse it without
// saying whether the session is alive. Servers that were restored from a backup may still have the session: History differs then,
// too, and zxids and versions remembered from before mean nothing.
//
// When a server refuses proofs of life, another server is tried while trust lasts. All refuse them when an ACL or the credentials
// were changed. Once a proof is accepted there is an incarnation again. Proofs without an answer are no reason to give a session
// up.
//
// A server has a second to accept the connection and another to answer the handshake; longer where the path is slow or all
// servers were too slow, but never more than T/4 each, or 2/3 T while there is no incarnation. Only answers to reads of data, of
// children or of an ACL may be large, up to [Options].MaxAnswer of what was really sent. A larger one fails its read with
// [ErrAnswerTooLarge], and nothing else.
//
// Servers end the connection at a write over their jute.maxbuffer. Writes of 4 KiB and more are suspected of that if the
// connection ends right after the write each time, last while the write is held back, and carries no other write of that size; so
// a link that is merely bad is no reason. Writes of that size are then refused for ten seconds, and for longer each time that
// another was tried in vain.
//
// # Watches
//
// The wake-up after 4/5 T to T is at random, so that members do not all read at once. A server keeps one watch for each path and
// kind, however often a watch is asked for. DataWatches send requests only when znodes are added and when a connection was made
// anew.
//
// # Concurrency
//
// Every method of Session, Incarnation and Watch may be called from any goroutine. Blocking calls end with their context, with
// the ZooKeeper session, and with Run. Close returns only when the session has ended; its context ends only the wait for those
// that keep the session open (KeepOpen). A context that ends after a write was sent ends only the wait: the call then returns
// [ErrUncertain]. At most 512 requests are in flight; further ones wait. A Session calls no code of the user's but
// [Options].Dial, [Options].Logger, the functions in [Options].TLS, and [Options].Registerer.
package session
