package chaos_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// thief ends sessions of a member that reaches ZooKeeper by its links.
type thief struct {
	m     *member
	links proxy.Links
	addr  string
	ended map[int64]bool
}

// closeNext ends the member's session, or the next one as soon as there is one.
func (th *thief) closeNext() {
	f := th.m.f
	f.t.Helper()
	var s proxy.Session
	wait.Until(f.t, settleLimit, func() bool {
		for _, l := range th.links {
			if s = l.Session(); s.ID != 0 && !th.ended[s.ID] {
				return true
			}
		}
		return false
	}, func() string { return "a session" })
	th.ended[s.ID] = true
	if err := f.rob(th.m, s, th.addr); err != nil {
		f.t.Logf("session 0x%x was not there any more: %v", s.ID, err) // another one came in between
	}
}

// robbery is the end of a session by somebody who is not its client.
type robbery struct {
	m        *member
	session  string
	from, to int64 // when what it held may have two owners
}

// rob ends a member's session at a server. What the session holds is free at once; the member hears of it, at worst when its
// trust ends.
func (f *fleet) rob(m *member, s proxy.Session, addr string) error {
	from := members.Monotonic()
	if err := s.Close(f.t.Context(), addr); err != nil {
		return fmt.Errorf("close session 0x%x: %w", s.ID, err)
	}
	f.faultAt("session closed", from)
	f.robberies = append(f.robberies, robbery{
		m: m, session: fmt.Sprintf("0x%x", uint64(s.ID)), from: from, to: members.Monotonic() + int64(f.opts.timeout*2/3),
	})
	return nil
}

// excuse has the checker hold against nobody that what the session held, by its member's log, had two owners.
func (r robbery) excuse() {
	held := map[int32]string{} // the session of the claim
	exempt := map[int32]bool{}
	for _, e := range r.m.events {
		if e.T > r.to {
			break
		}
		switch e.Event {
		case eventlog.Claimed:
			held[*e.Partition] = e.Session
			exempt[*e.Partition] = exempt[*e.Partition] || e.Session == r.session && e.T >= r.from
		case eventlog.Released, eventlog.Lost, eventlog.Untrusted, eventlog.Left:
			at := cmp.Or(e.Since, e.T)
			for id, session := range held {
				if e.Partition != nil && *e.Partition != id {
					continue
				}
				exempt[id] = exempt[id] || session == r.session && at >= r.from
				delete(held, id)
			}
		}
	}
	for id, session := range held {
		exempt[id] = exempt[id] || session == r.session
	}
	for id, yes := range exempt {
		if yes {
			r.m.f.exemptOverlap(id, r.from, r.to)
		}
	}
}

// startWithThief starts three members, of which the last can be robbed.
func startWithThief(t *testing.T) (*fleet, *member, *thief) {
	t.Helper()
	zookeeper := sharedZooKeeper(t)
	f := newFleet(t, 20, options{})
	f.start("m0")
	f.start("m1")
	links := proxy.To(t, zookeeper.Addrs())
	victim := f.start("victim", via(join(links.Addrs()...)))
	f.settle()
	return f, victim, &thief{m: victim, links: links, addr: zookeeper.Addr(), ended: map[int64]bool{}}
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
	crashed(t, "owned-after", r)
	t.Attr("sessions", fmt.Sprintf("%d with a say in the log, %d ended", victim.sessions(), len(th.ended)))
	report := f.finish()
	t.Attr("exempt-overlaps", fmt.Sprint(report.Exempted))
	f.repeatedOnlyAfter(report, eventlog.Untrusted)
}

// Scenario 20: one member loses its session all the time; the others must not starve.
func TestFlapping(t *testing.T) {
	t.Parallel()
	const times = 10
	f, _, th := startWithThief(t)
	at := members.Monotonic()
	for range times {
		f.unsettled = false // each is one of its own
		th.closeNext()
		wait.Pass(t, 1500*time.Millisecond) // enough to come back
	}
	flapped := time.Duration(members.Monotonic() - at)
	f.settle()
	silence := f.longestSilence(at)
	t.Attr("flapping", fmt.Sprintf("%d times in %v; others: %d and %d rebalances; longest silence of a partition %v",
		times, ms(flapped), f.all[0].rebalances(at), f.all[1].rebalances(at), ms(silence)))
	if silence > silent && !stalls.excuse(f.name(), at, members.Monotonic(), silence-silent) {
		t.Errorf("a partition had no message for %v", silence)
	}
	for _, other := range f.all[:2] {
		if _, n := other.distrust(at); n > 0 {
			t.Errorf("%s lost its trust %d times", other.Name, n)
		}
		if n := other.rebalances(at); n > 2*times { // one when it goes and one when it comes
			t.Errorf("%s: %d rebalances for %d flaps", other.Name, n, times)
		}
	}
	report := f.finish()
	t.Attr("exempt-overlaps", fmt.Sprint(report.Exempted))
	f.repeatedOnlyAfter(report, eventlog.Untrusted)
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
