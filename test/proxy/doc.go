// Package proxy puts a proxy between a client and a server, which tests can hold, slow down and cut, without privileges. The two
// notice no more of it than of a network.
//
//	links := proxy.To(t, zk.Addrs()) // the way of one client to each server
//	run(links.Addrs())
//	links.BlackHole(proxy.Both)
//	…
//	links.Heal()
//
// Each client that is to be cut on its own needs links of its own.
//
// # Faults of a link
//
//	[Link.Cut]        connections are reset, new ones are made
//	[Link.Refuse]     connections are reset, new ones are refused
//	[Link.BlackHole]  nothing arrives, in one direction or both; senders don't notice; what was sent arrives after Heal
//	[Link.Silence]    new connections are accepted, and that is all; those that are there go on
//	[Link.Slow]       latency, jitter, bandwidth, in each direction
//	[Link.CutClients] the clients see resets and refusals, the server sees silence
//	[Link.LoseReply]  a request is executed, but instead of its reply the connection is reset
//	[Link.Heal]       ends all of them
//
// [Links] has the same methods, for all of its links. [Link.Session] returns the id and password of the ZooKeeper session that
// came by last, and [Session.Close] ends it behind its client's back.
//
// # Ensembles
//
// [StartEnsemble] starts ZooKeeper servers that reach each other through links:
//
//	e := proxy.StartEnsemble(t, servers.ZooKeeperOptions{Servers: 3, TickTime: time.Second})
//	e.CutFollower(2)              // server 2 and its leader receive nothing from each other
//	leader := e.CutLeaderOneSide() // followers see resets, the leader sees silence
//	e.Heal()
//
// A follower that is cut answers reads until it notices, after syncLimit ticks; a leader cut on one side answers reads and syncs
// until its ack deadline, syncLimit + 1 ticks. Both go on longer than the sessions of their clients if those are shorter than
// that: syncLimit is 10 unless ZooKeeperOptions.Config says "syncLimit". Clients reach the servers directly, by [Ensemble]'s
// Addrs, or by links of their own (a member that is to stay on the cut server gets this server's address alone, else it leaves
// for another).
//
// # Not guaranteed
//
// A proxy accepts before it asks the server, so a client never sees SYN packets vanish: behind a black hole it is connected and
// hears nothing; and a server that does not listen does not refuse it, but resets it. What is in flight when a fault begins may
// still arrive.
//
// # Concurrency
//
// Methods may be called from any goroutine, but for New, To, StartEnsemble and Heal, which end the test by Fatal when something
// goes wrong.
package proxy
