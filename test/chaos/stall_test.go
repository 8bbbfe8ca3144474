package chaos_test

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
)

const (
	stallTick  = 10 * time.Millisecond
	stallNoted = 100 * time.Millisecond // what is shorter is nobody's excuse

	// What is more than that is no excuse either: where it is, nothing can be said of times.
	stallMost       = 5 * time.Second // that one may last
	stallsAScenario = 2               // that one scenario may live by
	stallsARun      = 5               // that all of them may
)

// longer is how many minutes the random mix goes on for longer than usual; for each there may be one excuse more.
func longer() int { return max(0, int(*minutes)-mixMinutes) }

// stalls notes when this machine, which runs members and servers too, gave this process no time.
var stalls stallProbe

// stallProbe notes the gaps between the ticks of a ticker.
type stallProbe struct {
	mu   sync.Mutex
	last int64
	gaps []stall
	used map[stall]map[string]bool // by whom as an excuse
}

// stall is a time in which nothing ran.
type stall struct{ from, to int64 } // members.Monotonic

// start begins to note until end.
func (p *stallProbe) start() (end func()) {
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		every := time.NewTicker(stallTick)
		defer every.Stop()
		for {
			p.tick(members.Monotonic())
			select {
			case <-every.C:
			case <-done:
				return
			}
		}
	})
	return func() { close(done); ticking.Wait() }
}

func (p *stallProbe) tick(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != 0 && now-p.last >= int64(stallNoted) {
		p.gaps = append(p.gaps, stall{p.last, now})
	}
	p.last = now
}

// worst returns the longest gap that lies in a time, if only by a part.
func (p *stallProbe) worst(from, to int64) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.gaps {
		if s.from < to && s.to > from {
			longest = max(longest, time.Duration(s.to-s.from))
		}
	}
	return longest
}

// excuse says whether there is a gap of at least so long in a time, if only by a part, and notes that somebody lives by it.
func (p *stallProbe) excuse(who string, from, to int64, least time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.gaps {
		if long := time.Duration(s.to - s.from); s.from < to && s.to > from && long >= least && long <= stallMost {
			if p.used == nil {
				p.used = map[stall]map[string]bool{}
			}
			if p.used[s] == nil {
				p.used[s] = map[string]bool{}
			}
			p.used[s][who] = true
			return true
		}
	}
	return false
}

// excused counts the gaps that somebody lives by; "" is anybody.
func (p *stallProbe) excused(who string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, by := range p.used {
		if who == "" || by[who] {
			n++
		}
	}
	return n
}

// String tells of all gaps.
func (p *stallProbe) String() string {
	excused := p.excused("")
	longest := p.worst(math.MinInt64, math.MaxInt64)
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("this machine stood still %d times, for %v at most; %d of them are excuses", len(p.gaps), ms(longest), excused)
}

// stalled says whether the machine stood still, around the moment at which trust ended, for as long as there is between two
// proofs that a session is alive. That is an excuse, of which there may not be many.
func (f *fleet) stalled(e eventlog.Event) bool {
	return stalls.excuse(f.name(), cmp.Or(e.Since, e.T)-int64(f.opts.timeout), e.T, f.opts.timeout/6)
}

// patience says that a scenario did not live by too many excuses.
func (f *fleet) patience() {
	f.t.Helper()
	most := stallsAScenario
	if f.scenario == mixed {
		most += longer()
	}
	if n := stalls.excused(f.name()); n > most {
		f.t.Errorf("the machine stood still at %d times in which something went wrong, want %d at most", n, most)
	}
}

// distrust lists how often members lost their trust after a time, and how often the machine had no part in it.
func (f *fleet) distrust(since int64) (times, unexcused int) {
	for _, m := range f.all {
		n, bad := m.distrust(since)
		times, unexcused = times+n, unexcused+bad
	}
	return times, unexcused
}

// distrust is that of one member.
func (m *member) distrust(since int64) (times, unexcused int) {
	for _, e := range m.events {
		if e.T <= since || e.Event != eventlog.Untrusted {
			continue
		}
		times++
		if !m.f.stalled(e) {
			unexcused++
		}
	}
	return times, unexcused
}

// repeatedOnlyAfter says that messages may be handed out twice only after terms that ended in some ways. Unless that trust ended
// is one of them nobody may have lost it, other than because the machine was too busy, which is reported.
func (f *fleet) repeatedOnlyAfter(r *eventlog.Report, causes ...string) {
	f.t.Helper()
	expected := map[string]bool{}
	for _, cause := range causes {
		expected[cause] = true
	}
	if times, unexcused := f.distrust(0); !expected[eventlog.Untrusted] && times > 0 {
		f.t.Attr("unexpected-loss-of-trust", fmt.Sprintf("%d times, %d messages were handed out again",
			times, r.Repeated[eventlog.Untrusted]))
		expected[eventlog.Untrusted] = true
		if unexcused > 0 {
			f.t.Errorf("trust was lost %d times, %d of them while the machine ran as it should", times, unexcused)
		}
	}
	f.patience()
	for cause, n := range r.Repeated {
		if !expected[cause] {
			f.t.Errorf("%d messages were handed out again after terms that ended with %q", n, cause)
		}
	}
}

func TestExcuses(t *testing.T) {
	t.Parallel()
	var p stallProbe
	at := func(ms int64) int64 { return ms * int64(time.Millisecond) }
	for _, now := range []int64{1000, 1200, 1700, 7000} { // gaps of 0.2, 0.5 and 5.3 s
		p.tick(at(now))
	}
	for _, c := range []struct {
		who             string
		from, to, least int64
		want            bool
		a, all          int // excuses of a, and of anybody, from then on
	}{
		{"a", 0, 1000, 100, false, 0, 0},
		{"a", 0, 1001, 200, true, 1, 1},
		{"a", 0, 1001, 201, false, 1, 1},
		{"a", 1100, 1150, 200, true, 1, 1}, // the same again
		{"b", 1100, 1150, 200, true, 1, 1},
		{"b", 1100, 1650, 500, true, 1, 2},
		{"a", 1700, 9000, 100, false, 1, 2}, // longer than any excuse
	} {
		if got := p.excuse(c.who, at(c.from), at(c.to), time.Duration(at(c.least))); got != c.want {
			t.Errorf("%s, from %d to %d, %d: %v, want %v", c.who, c.from, c.to, c.least, got, c.want)
		}
		if a, all := p.excused("a"), p.excused(""); a != c.a || all != c.all {
			t.Errorf("%s, from %d to %d: %d and %d excuses, want %d and %d", c.who, c.from, c.to, a, all, c.a, c.all)
		}
	}
}

func TestStallProbe(t *testing.T) {
	t.Parallel()
	var p stallProbe
	at := func(ms int64) int64 { return ms * int64(time.Millisecond) }
	for _, now := range []int64{1000, 1010, 1109, 1900, 1910, 2910} {
		p.tick(at(now))
	}
	for _, c := range []struct{ from, to, want int64 }{
		{0, 1109, 0}, {1000, 1110, 791}, {1899, 1905, 791}, {1900, 1910, 0}, {1000, 3000, 1000}, {2910, 9000, 0},
	} {
		if got := p.worst(at(c.from), at(c.to)); got != time.Duration(at(c.want)) {
			t.Errorf("from %d to %d: %v, want %d ms", c.from, c.to, got, c.want)
		}
	}
}
