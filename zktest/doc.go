// Package zktest is an in-memory ZooKeeper server for tests. It speaks ZooKeeper's wire protocol, so that the real client
// library is tested along: go-zookeeper, kazoo, or any other. It needs no Java and starts in microseconds.
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
//		time.Sleep(12 * time.Second) // takes no time: its session expires, its ephemerals are gone
//	})
//
// [Start] and [StartVirtual] are for tests. [StartTCP] is for everything else: a program, a TestMain, an example, a harness
// in another language. [NewServer] and [Server.Serve] take listeners of your own.
//
// # What it does
//
// What it answers is what ZooKeeper 3.9 answers, and 3.8 but for details: results, error codes and which error comes first,
// Stat, zxids (a refused write and a session's begin and end take one each), sequence numbers, watch events and their
// order. One conformance suite, and random requests, run on zktest and on both real servers.
//
//   - sessions: created, attached again with id and password, moved, closed; timeouts held between the limits; expired in
//     ticks, at roundUp(last packet + timeout, tick); a client that has seen a higher zxid is refused
//   - create and create2 of persistent, ephemeral and sequential znodes and of containers (which go once they are empty);
//     delete, exists, getData, setData, getChildren, getChildren2, getACL, setACL, sync, multi, multiRead, getEphemerals,
//     getAllChildrenNumber, whoAmI, ping
//   - one-shot, persistent and recursive watches: set by reads, addWatch, setWatches and setWatches2; removeWatches,
//     checkWatches
//   - ACLs of the schemes world, auth, digest, ip and super, enforced
//   - jute.maxbuffer: a larger packet drops the connection
//   - the four-letter words conf, envi, isro, mntr, ruok, srvr and stat, as the first bytes of a connection. The lines have
//     the form of the real ones; envi, conf and mntr have only those of the real server's keys for which there is a value
//     here. Latencies are 0. ZooKeeper's other words are refused as by a server whose whitelist does not have them
//
// # Guarantees
//
//   - Results, error codes, Stat, zxids, sequence numbers and watch events are those of the real servers for everything
//     listed above.
//   - The same requests in the same order have the same results. Several sessions that expire in one tick, and what one of
//     them leaves behind, go in a fixed order. In a testing/synctest bubble times and session ids are the same in each run
//     too, because the clock is.
//   - When [Server.Close] has returned, its goroutines have ended (a hook that waits is waited for), its timers are stopped,
//     its listeners and connections closed. Sessions are not ended: clients see a crash. The tree can still be read, by
//     [Server.Get], [Server.Children], [Server.Dump] and [Server.Sessions].
//   - A [Network] has no goroutines: nothing is left of it once nobody uses its connections.
//
// # Not guaranteed
//
//   - The order of requests that come in on different connections at the same moment: it is up to the scheduler, in a bubble
//     too, as are zxids then.
//   - How long things take: zktest answers in microseconds, a real server syncs its disk first. Use [Network.Delay] or
//     [Server.SetHook] where that matters, and measure on a real one.
//   - That a client that works here works everywhere: see what is left out below.
//
// # What it does not
//
//   - TTL znodes: refused, as by a server without extendedTypesEnabled. Reconfiguration: refused likewise. Quotas: none.
//   - what makes a real server stumble, and no client sends: null paths, writes in a multiRead, deleteContainer
//   - TLS and x509 (give Serve a tls.Listener for TLS alone), SASL, the admin server, read-only mode, local sessions,
//     maxClientCnxns
//   - ensembles: one server may serve several listeners, which share one state; [Server.Isolate] cuts one of them off,
//     [Server.Lag] keeps one behind, and a hook of [Server.SetHook] can make one report signs of life to its leader late.
//     There is no election: four-letter words call the first listener that is not isolated the leader
//   - disk: data lives as long as the Server does, over [Server.Restart] too
//
// # Faults
//
//	session expires by silence        Client.BlackHole(Both), Client.Freeze
//	session gone at once              Server.KillSession
//	connection reset                  Network.Cut, Client.Cut, Server.CutAll, Server.CutSession
//	one direction lost                Client.BlackHole(ToServer or ToClient); what is held back arrives after Heal
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
// [Server.Create], [Server.Set] and [Server.Delete] do what an operator would, behind the clients' backs.
//
// # Concurrency
//
// All methods may be called from any goroutine at any time. Requests of one connection are executed in the order in which
// they came, all requests one after the other. A watch's event is sent before the reply to any later request, and before
// the reply to the request that caused it. Nothing of the package waits on a lock while it is held over something that
// blocks, so a testing/synctest bubble always comes to rest. In a bubble, make everything inside of it: server, network,
// listeners, clients.
package zktest
