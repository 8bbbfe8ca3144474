package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// leaderStarts is how long a leader that is elected may take until it listens.
const leaderStarts = 3 * time.Second

// Ensemble is a ZooKeeper ensemble whose servers reach each other through links.
type Ensemble struct {
	*servers.ZooKeeper

	tb testing.TB

	mu    sync.Mutex
	ports map[int]servers.PeerPorts // by server
	peers map[[2]int]Links          // by from and to: where followers follow, where leaders are elected
}

// StartEnsemble starts one of opts.Servers servers, 3 unless it says otherwise, and returns when all of it serves.
func StartEnsemble(tb testing.TB, opts servers.ZooKeeperOptions) *Ensemble {
	tb.Helper()
	opts.Servers = cmp.Or(opts.Servers, 3)
	e := &Ensemble{tb: tb, ports: make(map[int]servers.PeerPorts), peers: make(map[[2]int]Links)}
	opts.Peer = e.peer
	e.ZooKeeper = servers.StartZooKeeper(tb, opts)
	return e
}

// peer makes the links from one server to another.
func (e *Ensemble) peer(from, to int, ports servers.PeerPorts) servers.PeerPorts {
	e.tb.Helper()
	quorum := start(e.tb, &Link{target: local(ports.Quorum), patience: leaderStarts})
	election := start(e.tb, &Link{
		target: local(ports.Election),
		first:  func(data []byte) []byte { return e.introduce(from, to, data) },
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peers[[2]int{from, to}].Refuse() // those to ports that somebody else had
	e.ports[to], e.peers[[2]int{from, to}] = ports, Links{quorum, election}
	return servers.PeerPorts{Quorum: port(e.tb, quorum), Election: port(e.tb, election)}
}

// introduce changes what a server says of itself when it connects for an election: of the two the one with the greater number
// connects, and if it is asked by the other it does so at the address by which that introduced itself. So that is to be a link's.
func (e *Ensemble) introduce(from, to int, data []byte) []byte {
	e.mu.Lock()
	own, back := local(e.ports[from].Election), e.peers[[2]int{to, from}]
	e.mu.Unlock()
	if !bytes.Contains(data, []byte(own)) {
		e.tb.Errorf("server %d does not introduce itself to server %d as %s: %q", from+1, to+1, own, data)
		return data
	}
	// All ports have five digits.
	return bytes.Replace(data, []byte(own), []byte(back[1].Addr()), 1)
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func port(tb testing.TB, l *Link) int {
	tb.Helper()
	_, text, err := net.SplitHostPort(l.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// LeaderIndex waits until there is a leader and returns its index.
func (e *Ensemble) LeaderIndex() int {
	e.tb.Helper()
	index := -1
	wait.Until(e.tb, 30*time.Second, func() bool {
		index = slices.IndexFunc(e.Nodes(), func(n *servers.ZooKeeperNode) bool { return n.Mode() == "leader" })
		return index >= 0
	}, func() string { return "a leader" })
	return index
}

// FollowerIndex waits until some server follows and returns its index.
func (e *Ensemble) FollowerIndex() int {
	e.tb.Helper()
	index := -1
	wait.Until(e.tb, 30*time.Second, func() bool {
		index = slices.IndexFunc(e.Nodes(), func(n *servers.ZooKeeperNode) bool { return n.Mode() == "follower" })
		return index >= 0
	}, func() string { return "a follower" })
	return index
}

// CutFollower holds all between a server and the others, in both directions, until Heal: none of them notices before its time.
func (e *Ensemble) CutFollower(index int) {
	for pair, links := range e.links() {
		if pair[0] == index || pair[1] == index {
			links.BlackHole(Both)
		}
	}
}

// CutLeaderOneSide cuts the leader off until Heal: its followers see resets, it sees silence. It returns the leader's index.
func (e *Ensemble) CutLeaderOneSide() int {
	e.tb.Helper()
	leader := e.LeaderIndex()
	for pair, links := range e.links() {
		switch leader {
		case pair[0]:
			links.BlackHole(Both)
		case pair[1]:
			links.CutClients()
		}
	}
	return leader
}

// Heal ends all that was cut between servers.
func (e *Ensemble) Heal() {
	e.tb.Helper()
	for _, links := range e.links() {
		links.Heal()
	}
}

func (e *Ensemble) links() map[[2]int]Links {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.peers)
}
