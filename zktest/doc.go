// Package zktest is an in-memory ZooKeeper server for tests. It speaks ZooKeeper's wire protocol, so tests include the real
// client library: go-zookeeper, kazoo, or any other. It needs no Java and starts in microseconds.
//
//	srv, address := zktest.Start(t, zktest.Options{}) // TCP, in real time, until the test ends
//
//	srv, address, err := zktest.StartTCP(ctx, "127.0.0.1:2181", zktest.Options{}) // the same without a test, until Close
//
//	synctest.Test(t, func(t *testing.T) { // or in virtual time
//		srv, nw := zktest.StartVirtual(t, zktest.Options{})
//		s, err := session.Start(t.Context(), []string{"zk:2181"}, session.Options{Dial: nw.Client("a").Dial})
//		…
//		defer s.Close(t.Context())
//		nw.Client("a").BlackHole(zktest.Both)
//		time.Sleep(12 * time.Second) // takes no real time: the session expires, and its ephemeral znodes are gone
//	})
//
// [Start] and [StartVirtual] are for tests. [StartTCP] is for everything else: a program, a TestMain, an example, a harness in
// another language. [Server.Serve] takes any listener.
//
// # What it does
//
// zktest answers as ZooKeeper 3.9 does, and as 3.8 except for details: results, error codes and which error comes first, Stat,
// zxids (a refused write and a session's begin and end take one each), sequence numbers, watch events and their order. One
// conformance suite, and random requests, run on zktest and on both real servers.
//
//   - sessions: created, attached again with id and password, moved, closed; timeouts bounded by the limits; expired in ticks, at
//     roundUp(last packet + timeout, tick); a client that has seen a higher zxid is refused
//   - create and create2 of persistent, ephemeral and sequential znodes and of containers (removed when they are empty,
//     ZOOKEEPER-2163); delete, exists, getData, setData, getChildren, getChildren2, getACL, setACL, sync, multi, multiRead,
//     getEphemerals, getAllChildrenNumber, whoAmI, ping
//   - one-shot, persistent and recursive watches (ZOOKEEPER-1416): set by reads, addWatch, setWatches and setWatches2;
//     removeWatches, checkWatches
//   - ACLs of the schemes world, auth, digest, ip and super, enforced
//   - jute.maxbuffer: a larger packet drops the connection
//   - the four-letter words conf, envi, isro, mntr, ruok, srvr and stat, as the first bytes of a connection. The lines have the
//     form of the real ones; envi, conf and mntr lack the keys for which zktest has no value. Latencies are 0. ZooKeeper's other
//     words are refused as by a server whose whitelist does not have them
//
// # Guarantees
//
//   - Results, error codes, Stat, zxids, sequence numbers and watch events are those of the real servers for everything listed
//     above.
//   - The same requests in the same order have the same results. Sessions that expire in one tick, and the ephemeral znodes of
//     one session, are removed in a fixed order. In a testing/synctest bubble times and session ids are the same in each run too,
//     because the clock is.
//   - When [Server.Close] has returned, the server's goroutines have ended, hooks included; its timers are stopped, its listeners
//     and connections closed. Sessions are not ended: clients see a crash. The tree can still be read, by [Server.Get],
//     [Server.Children], [Server.Dump] and [Server.Sessions].
//   - A [Network] has no goroutines, so it needs no end.
//
// # Not guaranteed
//
//   - The order of requests that come in on different connections at the same moment, and so their zxids: the scheduler decides,
//     in a bubble too.
//   - How long requests take: zktest answers in microseconds, a real server syncs its disk first. Use [Network.Delay] or
//     [Server.SetHook] where that matters, and measure on a real server.
//   - That a client that works with zktest works with every server: see what is left out below.
//
// # What it does not
//
//   - TTL znodes (ZOOKEEPER-2169): refused, as by a server without extendedTypesEnabled. Reconfiguration: refused likewise.
//     Quotas: none.
//   - requests on which a real server fails in odd ways, and which no client sends: null paths, writes in a multiRead,
//     deleteContainer
//   - TLS and x509 (give Serve a tls.Listener for TLS alone), SASL, the admin server, read-only mode, local sessions,
//     maxClientCnxns
//   - ensembles: one server may serve several listeners, which share one state. [Server.Isolate] cuts one of them off,
//     [Server.Lag] makes one a follower that is behind, and a hook of [Server.SetHook] can make one report signs of life to its
//     leader late. There is no election: for four-letter words the first listener that is not isolated is the leader
//   - disk: data lives as long as the Server, [Server.Restart] included
//
// # Faults
//
//	session expires by silence        Client.BlackHole(Both), Client.Freeze
//	session gone at once              Server.KillSession
//	connection reset                  Network.Cut, Client.Cut, Server.CutAll, Server.CutSession
//	one direction lost                Client.BlackHole(ToServer or ToClient); the bytes arrive after Heal
//	slow network                      Network.Delay, Client.Delay
//	server stopped (SIGSTOP, pause)   Server.Freeze, Server.FreezeClock, Server.Thaw
//	nobody listens                    Network.Refuse, Client.Refuse
//	accepted and closed               Server.RefuseHandshakes
//	accepted, never answered          Server.SilentHandshakes
//	reply lost after the commit       Server.LoseReply
//	crash, restart, data lost         Server.Down, Server.Restart
//	restored from a backup            Server.Backup, Server.Restore
//	deposed leader, cut-off follower  Server.Isolate, Server.Rejoin
//	follower that is behind           Server.Lag, Server.CatchUp
//	any of these for one request      Server.SetHook
//
// [Server.Create], [Server.Set] and [Server.Delete] change znodes as an operator in another session would.
//
// # Concurrency
//
// All methods may be called from any goroutine at any time. The server executes requests one after the other, those of one
// connection in their order. It sends a watch's event before the reply to the request that caused the event, and before replies
// to later requests. No lock is held while anything blocks, so all goroutines of a testing/synctest bubble can be durably
// blocked. In a bubble, create everything inside of it: server, network, listeners, clients.
package zktest
