package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// Scenario 15: the way to ZooKeeper is slow. Up to a round trip of T/3 nobody loses its trust, and nothing is rebalanced, and
// others can join. (From T/4 on a connection that is lost is had again only after trust has ended.)
func TestSlowNetwork(t *testing.T) {
	t.Parallel()
	const (
		timeout = 15 * time.Second
		beat    = 500 * time.Millisecond
	)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick, MaxSessionTimeout: timeout})
	roads := []*road{
		{name: "200ms-each-way", speed: proxy.Speed{Latency: 200 * time.Millisecond}, join: true},
		{name: "1s-each-way", speed: proxy.Speed{Latency: time.Second}}, // joining takes half a minute
		{name: "2s-each-way", speed: proxy.Speed{Latency: 2 * time.Second}},
		{name: "0-to-1s-each-way", speed: proxy.Speed{Jitter: time.Second}, join: true},
		{name: "1KiB/s", speed: proxy.Speed{Rate: 1 << 10}, join: true},
	}
	for _, r := range roads {
		r.fleet = newFleet(t, 15, options{name: r.name, zookeeper: join(zk.Addrs()...), timeout: timeout, beat: beat})
		r.hire(zk)
		r.hire(zk)
	}
	for _, r := range roads {
		r.settle()
	}
	slow := members.Monotonic()
	for _, r := range roads {
		r.fault("slow network")
		r.unnoticed("whoever notices has lost his trust, his connection, or his view")
		r.slowDown()
	}
	wait.Pass(t, timeout) // whatever was trusted before is not any more, unless proofs come through
	for _, r := range roads {
		r.undisturbed(slow)
	}
	for _, r := range roads {
		r.settle()
		if r.join {
			r.hire(zk)
			r.slowDown()
		}
	}
	for _, r := range roads {
		r.settle()
	}
	for _, r := range roads {
		for _, m := range r.all {
			if n := m.count[eventlog.Untrusted]; n != 0 {
				t.Errorf("%s: %s lost its trust %d times", r.name, m.Name, n)
			}
		}
		for _, links := range r.links {
			links.Heal()
		}
	}
	for _, r := range roads {
		r.repeatedOnlyAfter(r.finish())
	}
}

// road is a group on a slow way.
type road struct {
	*fleet

	name  string
	speed proxy.Speed
	join  bool // somebody joins while it is slow
	links []proxy.Links
}

// hire starts another member, on a way of its own.
func (r *road) hire(zk *servers.ZooKeeper) {
	r.t.Helper()
	links := proxy.To(r.t, zk.Addrs())
	r.links = append(r.links, links)
	r.fleet.hire(fmt.Sprintf("m%d", len(r.all)), via(join(links.Addrs()...)))
}

// slowDown makes all ways slow.
func (r *road) slowDown() {
	for _, links := range r.links {
		links.Slow(proxy.Both, r.speed)
	}
}

// undisturbed says that since a time no member had another view, lost its trust, or its connection.
func (r *road) undisturbed(since int64) {
	r.t.Helper()
	r.read()
	for _, m := range r.all {
		m.did(since)
		if stats := m.hand.ses.Stats(); stats.Reconnects != 0 || stats.Expirations != 0 {
			r.t.Errorf("%s: %s: %d reconnects, %d expirations", r.name, m.Name, stats.Reconnects, stats.Expirations)
		}
	}
}
