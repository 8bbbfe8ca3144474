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
		first   = 12 // partitions
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
		group := nameOfTest.Replace(t.Name() + "-" + r.name)
		r.crew = &crew{t: t, group: group, addrs: zk.Addrs(), timeout: timeout}
		r.hire(first)
		r.hire(first)
	}
	for _, r := range roads {
		r.owned(first, r.hands...)
	}
	slow := members.Monotonic()
	for _, r := range roads {
		injected.add("slow network")
		for _, h := range r.hands {
			h.links.Slow(proxy.Both, r.speed)
		}
	}
	wait.Pass(t, timeout) // whatever was trusted before is not any more, unless proofs come through
	for _, r := range roads {
		r.undisturbed(slow)
	}
	for _, r := range roads {
		if r.join {
			r.hire(first).links.Slow(proxy.Both, r.speed)
		}
	}
	for _, r := range roads {
		if r.join {
			begin := r.begun
			r.owned(first, r.hands...)
			t.Attr("joined-at-"+r.name, ms(time.Since(begin)).String())
		}
	}
	for _, r := range roads {
		for _, h := range r.hands {
			if n := h.count(eventlog.Untrusted); n != 0 {
				t.Errorf("%s: %s lost its trust %d times", r.name, h.name, n)
			}
			h.links.Heal()
		}
	}
	for _, r := range roads {
		for _, h := range r.hands {
			if err := h.leave(); err != nil {
				t.Errorf("%s: %s: %v", r.name, h.name, err)
			}
		}
		r.verdict()
	}
}

// road is a crew on a slow way.
type road struct {
	*crew

	name  string
	speed proxy.Speed
	join  bool      // somebody joins while it is slow
	begun time.Time // when the newest member was started
}

// hire starts another member.
func (r *road) hire(partitions int32) *hand {
	r.t.Helper()
	h := r.crew.hire(fmt.Sprintf("m%d", len(r.hands)), partitions)
	r.begun = time.Now()
	h.work(r.t)
	return h
}

// undisturbed says that since a time no member had another view, lost its trust, or its connection.
func (r *road) undisturbed(since int64) {
	r.t.Helper()
	for _, h := range r.hands {
		h.mu.Lock()
		for _, e := range h.events {
			if e.T > since {
				r.t.Errorf("%s: %s: %s", r.name, h.name, e.Event)
			}
		}
		h.mu.Unlock()
		if stats := h.ses.Stats(); stats.Reconnects != 0 || stats.Expirations != 0 {
			r.t.Errorf("%s: %s: %d reconnects, %d expirations", r.name, h.name, stats.Reconnects, stats.Expirations)
		}
	}
}
