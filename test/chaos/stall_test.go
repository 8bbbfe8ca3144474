package chaos_test

import (
	"cmp"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
)

const (
	stallTick  = 10 * time.Millisecond
	stallNoted = 100 * time.Millisecond // what is shorter is nobody's excuse
)

// stalls notes when this machine, which runs members and servers too, gave this process no time.
var stalls stallProbe

// stallProbe notes the gaps between the ticks of a ticker.
type stallProbe struct {
	mu   sync.Mutex
	last int64
	gaps []stall
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

// stalled says whether the machine stood still, around the moment at which trust ended, for as long as there is between two
// proofs that a session is alive.
func (f *fleet) stalled(e eventlog.Event) bool {
	return stalls.worst(cmp.Or(e.Since, e.T)-int64(f.opts.timeout), e.T) >= f.opts.timeout/6
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

// repeatedOnlyAfter says that messages may be handed out twice only after terms that ended in some ways. Unless that trust
// ended is one of them nobody may have lost it, other than because the machine was too busy, which is reported.
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
	for cause, n := range r.Repeated {
		if !expected[cause] {
			f.t.Errorf("%d messages were handed out again after terms that ended with %q", n, cause)
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
