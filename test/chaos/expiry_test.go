package chaos_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// thief ends sessions of a member that reaches ZooKeeper by its links.
type thief struct {
	f     *fleet
	links proxy.Links
	addr  string
	ended map[int64]bool
}

// closeNext ends the member's session, or the next one as soon as there is one. All that the session held is free at once.
func (th *thief) closeNext() {
	th.f.t.Helper()
	var s proxy.Session
	wait.Until(th.f.t, settleLimit, func() bool {
		for _, l := range th.links {
			if s = l.Session(); s.ID != 0 && !th.ended[s.ID] {
				return true
			}
		}
		return false
	}, func() string { return "a session" })
	at := members.Monotonic()
	th.ended[s.ID] = true
	if err := s.Close(th.f.t.Context(), th.addr); err != nil {
		th.f.t.Logf("session 0x%x was not there any more: %v", s.ID, err) // another one came in between
		return
	}
	th.f.fault("session closed")
	for id := range th.f.opts.partitions {
		th.f.exemptOverlap(int32(id), at, at+int64(th.f.opts.timeout))
	}
}

// startWithThief starts three members, of which the last can be robbed.
func startWithThief(t *testing.T) (*fleet, *member, *thief) {
	t.Helper()
	zookeeper := sharedZooKeeper(t)
	f := newFleet(t, options{})
	f.start("m0")
	f.start("m1")
	th := &thief{f: f, links: proxy.To(t, zookeeper.Addrs()), addr: zookeeper.Addr(), ended: map[int64]bool{}}
	victim := f.start("victim", via(strings.Join(th.links.Addrs(), ",")))
	f.settle()
	return f, victim, th
}

// Scenario 20: a member's session ends, and the next one while it recovers, five times in a row.
func TestExpiresWhileRecovering(t *testing.T) {
	t.Parallel()
	const times = 5
	f, victim, th := startWithThief(t)
	r := f.measure("five-in-a-row", func() {
		for range times {
			th.closeNext()
		}
	})
	if r.owned > crashBound {
		t.Errorf("all is owned again after %v, want %v at most", r.owned, crashBound)
	}
	t.Attr("sessions", fmt.Sprintf("%d with a say in the log, %d ended", victim.sessions(), len(th.ended)))
	report := f.finish()
	t.Attr("exempt-overlaps", fmt.Sprint(report.Exempted))
	repeatedOnlyAfter(t, report, eventlog.Untrusted)
}

// Scenario 20: one member loses its session all the time; the others must not starve.
func TestFlapping(t *testing.T) {
	t.Parallel()
	const times = 10
	f, _, th := startWithThief(t)
	at := members.Monotonic()
	for range times {
		th.closeNext()
		wait.Pass(t, 1500*time.Millisecond) // enough to come back
	}
	flapped := time.Duration(members.Monotonic() - at)
	f.settle()
	t.Attr("flapping", fmt.Sprintf("%d times in %v; others: %d and %d rebalances; longest silence of a partition %v",
		times, ms(flapped), f.all[0].rebalances(at), f.all[1].rebalances(at), ms(f.longestSilence(at))))
	for _, other := range f.all[:2] {
		if n := other.countAfter(at, eventlog.Untrusted); n > 0 {
			t.Errorf("%s lost its trust %d times", other.Name, n)
		}
		if n := other.rebalances(at); n > 3*times {
			t.Errorf("%s: %d rebalances for %d flaps", other.Name, n, times)
		}
	}
	report := f.finish()
	t.Attr("exempt-overlaps", fmt.Sprint(report.Exempted))
	repeatedOnlyAfter(t, report, eventlog.Untrusted)
}

// longestSilence is the longest time after since for which a partition had no message.
func (f *fleet) longestSilence(since int64) time.Duration {
	times := map[int32][]int64{}
	for _, m := range f.all {
		for _, e := range m.events {
			if e.Event == eventlog.Message && e.T > since {
				times[*e.Partition] = append(times[*e.Partition], e.T)
			}
		}
	}
	longest := time.Duration(0)
	for _, list := range times {
		before := since
		for _, t := range sorted(list) {
			longest, before = max(longest, time.Duration(t-before)), t
		}
	}
	return longest
}
