package chaos_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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
	m     *member
	links proxy.Links
	addr  string
	ended map[int64]bool      // sessions, by this thief
	tried map[int64]time.Time // when it tried in vain, by session
}

func newThief(m *member, links proxy.Links, addr string) *thief {
	return &thief{m: m, links: links, addr: addr, ended: map[int64]bool{}, tried: map[int64]time.Time{}}
}

// again is when a session that could not be closed is tried again: it may have gone, and its link has not seen another one.
const again = 250 * time.Millisecond

// close ends a session of the member's that its links have seen, if any of them is still there.
func (th *thief) close() bool {
	f := th.m.f
	f.t.Helper()
	for _, l := range th.links {
		s := l.Session()
		if s.ID == 0 || th.ended[s.ID] || time.Since(th.tried[s.ID]) < again {
			continue
		}
		err := f.rob(th.m, s, th.addr)
		if err == nil {
			th.ended[s.ID] = true
			return true
		}
		th.tried[s.ID] = time.Now()
		f.t.Log(err)
	}
	return false
}

// closeNext ends the member's session, or the next one as soon as there is one.
func (th *thief) closeNext() {
	f := th.m.f
	f.t.Helper()
	wait.Until(f.t, settleLimit, th.close, func() string { return "a session is closed" })
}

// closed waits until the member has been told of each session that was closed, and lives in another one, and says that there were
// so many.
func (th *thief) closed(times int) {
	f := th.m.f
	f.t.Helper()
	f.until("the member has been told that its sessions have ended", func() bool {
		return len(th.untold()) == 0 && th.back()
	})
	f.t.Attr("sessions", fmt.Sprintf("%d with a say in the log, %d ended", th.m.sessions(), len(th.ended)))
	if len(th.ended) != times {
		f.t.Errorf("%d sessions were closed, want %d", len(th.ended), times)
	}
}

// untold lists the sessions that were closed and of which the member does not say so.
func (th *thief) untold() (list []string) {
	told := map[string]bool{}
	for line := range strings.Lines(th.m.Log()) {
		if _, name, ok := strings.Cut(line, " session_id="); ok && strings.Contains(line, ` msg="session expired" `) {
			told[strings.TrimSpace(name)] = true
		}
	}
	for id := range th.ended {
		if !told[sessionName(id)] {
			list = append(list, sessionName(id))
		}
	}
	return list
}

// back says whether the last session in the member's log of events is none of those that were closed.
func (th *thief) back() bool {
	last := ""
	for _, e := range th.m.events {
		last = cmp.Or(e.Session, last)
	}
	for id := range th.ended {
		if sessionName(id) == last {
			return false
		}
	}
	return true
}

// sessionName is what logs call a session.
func sessionName(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

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
		m: m, session: sessionName(s.ID), from: from, to: members.Monotonic() + int64(f.opts.timeout*2/3),
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
		case eventlog.Releasing, eventlog.Lost, eventlog.Untrusted, eventlog.Left:
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
func startWithThief(t *testing.T) (*fleet, *thief) {
	t.Helper()
	zookeeper := sharedZooKeeper(t)
	f := newFleet(t, 20, options{})
	f.start("m0")
	f.start("m1")
	links := proxy.To(t, zookeeper.Addrs())
	victim := f.start("victim", via(join(links.Addrs()...)))
	f.settle()
	return f, newThief(victim, links, zookeeper.Addr())
}

// Scenario 20: a member's session ends, and the next one while it recovers, five times in a row.
func TestExpiresWhileRecovering(t *testing.T) {
	t.Parallel()
	const times = 5
	f, th := startWithThief(t)
	r := f.measure("five-in-a-row", func() {
		for range times {
			th.closeNext()
		}
		th.closed(times)
	})
	crashed(t, "owned-after", r)
	report := f.finish()
	t.Attr("exempt-overlaps", fmt.Sprint(report.Exempted))
	f.repeatedOnlyAfter(report, eventlog.Untrusted)
}

// Scenario 20: one member loses its session all the time; the others must not starve.
func TestFlapping(t *testing.T) {
	t.Parallel()
	const times = 10
	f, th := startWithThief(t)
	at := members.Monotonic()
	var begun []int64
	for range times {
		f.unsettled = false // each is one of its own
		begun = append(begun, members.Monotonic())
		th.closeNext()
		wait.Pass(t, 1500*time.Millisecond) // enough to come back
		f.until("the member is back", th.back)
	}
	flapped := time.Duration(members.Monotonic() - at)
	th.closed(times)
	f.settle()
	if n := th.m.sessions(); n != times+1 {
		t.Errorf("%d sessions, want %d", n, times+1)
	}
	t.Attr("flapping", fmt.Sprintf("%d times in %v; others: %d and %d rebalances",
		times, ms(flapped), f.all[0].rebalances(at), f.all[1].rebalances(at)))
	median(t, "longest-silence-of-a-partition", silenceBound, f.silences(at).longestOf(begun))
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

// silence is a time in which a partition had no message.
type silence struct{ from, to int64 }

func (s silence) long() time.Duration { return time.Duration(s.to - s.from) }

type silences []silence

// longest is how long the longest is.
func (all silences) longest() (longest time.Duration) {
	for _, s := range all {
		longest = max(longest, s.long())
	}
	return longest
}

// longestOf is how long the longest is of those that lie, if only by a part, between each of some times and the next.
func (all silences) longestOf(begun []int64) (longest []time.Duration) {
	for i, from := range begun {
		to := int64(math.MaxInt64)
		if i+1 < len(begun) {
			to = begun[i+1]
		}
		longest = append(longest, slices.DeleteFunc(slices.Clone(all), func(s silence) bool { return s.to <= from || s.from >= to }).longest())
	}
	return longest
}

// silences are all of each partition from a time until now.
func (f *fleet) silences(since int64) (all silences) {
	times := map[int32][]int64{}
	for _, id := range f.ids() {
		times[id] = []int64{members.Monotonic()}
	}
	for _, m := range f.all {
		for _, e := range m.events {
			if e.Event == eventlog.Done && e.T > since {
				times[*e.Partition] = append(times[*e.Partition], e.T)
			}
		}
	}
	for _, list := range times {
		before := since
		for _, t := range sorted(list) {
			all, before = append(all, silence{before, t}), t
		}
	}
	return all
}
