package zktest

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// wordLength is the length of a four-letter word, which a client may send as the first bytes of a connection, instead of a
// connect request. The answer is text, and ends with the connection. No connect request begins like a word: as the length of a
// packet a word would be above 1.6 GB.
const wordLength = 4

// softwareVersion is the version that the server reports: that of the ZooKeeper whose answers it gives.
const softwareVersion = "3.9.5-zktest, built on 2026-02-11 20:18 UTC"

// answered reports whether the server answers the word.
func answered(word string) bool {
	switch word {
	case "conf", "envi", "isro", "mntr", "ruok", "srvr", "stat":
		return true
	default:
		return false
	}
}

// refused reports whether ZooKeeper has the word and this server refuses it.
func refused(word string) bool {
	switch word {
	case "cons", "crst", "dirs", "dump", "gtmk", "hash", "srst", "stmk", "wchc", "wchp", "wchs":
		return true
	default:
		return false
	}
}

// word queues the answer to a four-letter word. It returns false if there is none, because the server is silent or the connection
// closed.
func (s *Server) word(c *conn, word string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaitGate(c) || s.faults.silent {
		return false
	}
	s.catchUp()
	c.countReceived()
	c.send([]byte(c.answer(word)))
	return true
}

// answer returns the answer to a word. Called with the lock held.
func (c *conn) answer(word string) string {
	if refused(word) {
		return word + " is not executed because it is not in the whitelist.\n"
	}
	switch word {
	case "ruok":
		return "imok"
	case "isro":
		return "rw"
	case "envi":
		return "Environment:\nzookeeper.version=" + softwareVersion + "\nhost.name=localhost\n"
	case "conf":
		return c.configuration()
	case "mntr":
		return c.monitoring()
	case "stat":
		return versionLine + c.clients() + c.summary()
	default:
		return versionLine + c.summary()
	}
}

// versionLine is the first line of the answers to srvr and stat.
const versionLine = "Zookeeper version: " + softwareVersion + "\n"

// configuration returns the answer to conf.
func (c *conn) configuration() string {
	_, port, err := net.SplitHostPort(c.listener)
	if err != nil {
		port = "-1" // the listener has no port
	}
	s := c.srv
	id := 0
	if len(s.listeners) > 1 {
		id = 1 + slices.IndexFunc(s.listeners, func(l net.Listener) bool { return l.Addr().String() == c.listener })
	}
	return fmt.Sprintf("clientPort=%s\nsecureClientPort=-1\ntickTime=%d\nmaxClientCnxns=0\n"+
		"minSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=%d\n",
		port, s.set.tick, s.set.minTimeout, s.set.maxTimeout, id)
}

// clients returns the list of connections for the answer to stat.
func (c *conn) clients() string {
	lines := []string{}
	for o := range c.srv.conns {
		interest := 0
		if o.session != nil {
			interest = 1
		}
		lines = append(lines, fmt.Sprintf(" /%s[%d](queued=0,recved=%d,sent=%d)\n", o.client, interest, o.received, o.sent))
	}
	slices.Sort(lines)
	return "Clients:\n" + strings.Join(lines, "") + "\n"
}

// summary returns the lines that the answers to srvr and stat have in common.
func (c *conn) summary() string {
	s, here := c.srv, c.view()
	text := fmt.Sprintf("Latency min/avg/max: 0/0.0/0\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: 0\n"+
		"Zxid: 0x%x\nMode: %s\nNode count: %d\n",
		s.received, s.sent, len(s.conns), here.zxid, s.mode(c.listener), here.tree.count())
	if s.mode(c.listener) == modeLeader {
		text += "Proposal sizes last/min/max: -1/-1/-1\n"
	}
	return text
}

// count returns the number of znodes as ZooKeeper counts them, with the root twice.
func (t tree) count() int { return len(t) + 1 }

// monitoring returns the answer to mntr, which has the real server's keys for which zktest has a value.
func (c *conn) monitoring() string {
	var b strings.Builder
	put := func(key string, value any) { fmt.Fprintf(&b, "zk_%s\t%v\n", key, value) }
	s, here := c.srv, c.view()
	mode, ephemerals, size := s.mode(c.listener), 0, 0
	for path, n := range here.tree {
		size += len(path) + len(n.data)
		if n.stat.EphemeralOwner != 0 {
			ephemerals++
		}
	}
	put("version", softwareVersion)
	put("server_state", mode)
	switch mode {
	case modeLeader:
		put("peer_state", "leading - broadcast")
	case modeFollower:
		put("peer_state", "following - broadcast")
	default:
	}
	put("ephemerals_count", ephemerals)
	put("num_alive_connections", len(s.conns))
	put("avg_latency", "0.0")
	put("outstanding_requests", 0)
	put("znode_count", here.tree.count())
	put("global_sessions", len(s.sessions))
	put("packets_sent", s.sent)
	put("packets_received", s.received)
	if mode == modeLeader {
		put("synced_followers", s.followers())
	}
	put("watch_count", s.dataWatches.size()+s.childWatches.size())
	put("min_latency", 0)
	put("approximate_data_size", size)
	put("local_sessions", 0)
	put("uptime", s.clock.now())
	put("max_latency", 0)
	if mode == modeLeader {
		put("learners", s.followers())
	}
	if mode != modeStandalone {
		put("quorum_size", len(s.listeners))
	}
	return b.String()
}

// The modes of a server.
const (
	modeStandalone = "standalone"
	modeLeader     = "leader"
	modeFollower   = "follower"
)

// mode returns the mode of the server behind a listener. Several listeners are an ensemble: the first that is not isolated is the
// leader. An isolated listener keeps its mode. Called with the lock held.
func (s *Server) mode(listener string) string {
	if stale := s.faults.isolated[listener]; stale != nil {
		return stale.mode
	}
	if len(s.listeners) < 2 {
		return modeStandalone
	}
	leads := slices.IndexFunc(s.listeners, func(l net.Listener) bool { return s.faults.isolated[l.Addr().String()] == nil })
	if leads >= 0 && s.listeners[leads].Addr().String() == listener {
		return modeLeader
	}
	return modeFollower
}

// followers returns how many listeners are followers. Called with the lock held.
func (s *Server) followers() int {
	n := 0
	for _, l := range s.listeners {
		if a := l.Addr().String(); s.faults.isolated[a] == nil && s.mode(a) == modeFollower {
			n++
		}
	}
	return n
}
