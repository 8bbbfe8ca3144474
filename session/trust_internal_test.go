package session

import (
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// at is a moment at which both clocks show the same.
func at(d time.Duration) instant { return instant{mono: d, wall: d} }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestTrustEnd(t *testing.T) {
	const T = 6 * time.Second
	prove := func(moments ...float64) func(*trust) {
		return func(tr *trust) {
			for _, m := range moments {
				tr.prove(at(seconds(m)))
			}
		}
	}
	connect := func(written float64, timeout time.Duration) func(*trust) {
		return func(tr *trust) { tr.connected(at(seconds(written)), timeout) }
	}
	writing := func(written float64) func(*trust) {
		return func(tr *trust) { tr.writing(at(seconds(written))) }
	}
	for name, c := range map[string]struct {
		steps []func(*trust)
		want  float64 // seconds
	}{
		"a proof at once after it":        {[]func(*trust){connect(0, T), prove(0.001)}, 4.001},
		"regular proofs":                  {[]func(*trust){connect(0, T), prove(1, 2, 3)}, 7},
		"an irregular proof":              {[]func(*trust){connect(0, T), prove(1, 2, 2.5)}, 6},
		"answers out of order":            {[]func(*trust){connect(0, T), prove(3, 1, 2)}, 7},
		"frozen for 2.9 s":                {[]func(*trust){connect(0, T), prove(1, 2, 4.9)}, 7},
		"frozen for 3.4 s":                {[]func(*trust){connect(0, T), prove(1, 2, 5.4)}, 7},
		"frozen for 3.7 s":                {[]func(*trust){connect(0, T), prove(1, 2, 5.7)}, 7},
		"and proven again":                {[]func(*trust){connect(0, T), prove(1, 2, 5.7, 6.7)}, 10.7},
		"connect request sent, T 6":       {[]func(*trust){connect(0, T), prove(1, 2), writing(2.5)}, 6},
		"connect request sent, T 30":      {[]func(*trust){connect(0, 30*time.Second), prove(5, 10), writing(11)}, 15},
		"the first of several counts":     {[]func(*trust){connect(0, 30*time.Second), prove(5, 10), writing(11), writing(14)}, 15},
		"answered with the same T":        {[]func(*trust){connect(0, 30*time.Second), prove(5, 10), writing(11), connect(11, 30*time.Second)}, 30},
		"answered with a smaller T":       {[]func(*trust){connect(0, 30*time.Second), prove(5, 10), writing(11), connect(11, 4*time.Second)}, 10 + 4*2./3},
		"a smaller T, proven again":       {[]func(*trust){connect(0, 30*time.Second), prove(5, 10), writing(11), connect(11, 4*time.Second), prove(12)}, 11 + 4*5./6},
		"a larger T does not count":       {[]func(*trust){connect(0, T), prove(1, 2), connect(3, 30*time.Second), prove(4)}, 4 + 4},
		"then what it was again":          {[]func(*trust){connect(0, T), prove(1), connect(2, 4*time.Second), connect(3, T), prove(4)}, 4 + 4},
		"many connects in quick sequence": {[]func(*trust){connect(0, T), prove(1), connect(1.1, T), connect(1.2, T), connect(1.3, T)}, 1 + 4},
		"connects prove nothing":          {[]func(*trust){connect(0, T), prove(1, 2), connect(3, T), connect(4, T), connect(5, T)}, 2 + 4},
	} {
		t.Run(name, func(t *testing.T) {
			tr := trust{timeout: T, minTimeout: 6 * time.Second}
			for _, step := range c.steps {
				step(&tr)
			}
			end, ok := tr.end()
			if want := seconds(c.want); !ok || (end.mono-want).Abs() > time.Microsecond {
				t.Errorf("trust ends at %v, want %v", end.mono, want)
			}
		})
	}
}

// A wall clock that jumps may shorten trust, never lengthen it; nor may a monotonic clock that stood still.
func TestTrustClocks(t *testing.T) {
	const T = 6 * time.Second
	made := func(proofs ...instant) instant {
		tr := trust{timeout: T}
		for _, p := range proofs {
			tr.prove(p)
		}
		end, _ := tr.end()
		return end
	}
	clocks := func(mono, wall float64) instant { return instant{mono: seconds(mono), wall: seconds(wall)} }
	for name, c := range map[string]struct {
		end, now instant
		want     bool // trusted
	}{
		"just before":                 {made(at(0)), clocks(3.9, 3.9), true},
		"just after":                  {made(at(0)), clocks(4, 4), false},
		"wall jumped an hour ahead":   {made(at(0)), clocks(1, 3601), false},
		"wall jumped an hour back":    {made(at(0)), clocks(1, -3599), true},
		"and then time passed":        {made(at(0)), clocks(4, -3596), false},
		"suspended for 5 s":           {made(at(0)), clocks(0.1, 5.1), false},
		"suspended between proofs":    {made(clocks(0, 0), clocks(1, 6)), clocks(1, 6), false},
		"jump back between proofs":    {made(clocks(0, 0), clocks(1, -3599)), clocks(4.9, -3595.1), true},
		"jump back, then time passed": {made(clocks(0, 0), clocks(1, -3599)), clocks(5, -3595), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := !c.end.reached(c.now); got != c.want {
				t.Errorf("trusted %v, want %v (end %+v, now %+v)", got, c.want, c.end, c.now)
			}
		})
	}
}

// The window of an incarnation that was once not trusted stays shut, whoever looked first.
func TestIncarnationStaysLost(t *testing.T) {
	now := at(0)
	s := &Session{now: func() instant { return now }, wake: make(chan struct{}, 1)}
	c := &client{s: s}
	inc := newIncarnation(t.Context(), c, 1, 1, at(4*time.Second))
	now = at(3 * time.Second)
	if !inc.Trusted() || !inc.extend(at(5*time.Second)) {
		t.Fatal("not trusted in time")
	}
	now = instant{mono: 3 * time.Second, wall: 5 * time.Second} // suspended
	if inc.Trusted() {
		t.Fatal("trusted after a suspension")
	}
	if inc.extend(at(20*time.Second)) || inc.Trusted() {
		t.Fatal("trusted again by a late proof")
	}
	if inc.ctx.Err() != nil {
		t.Fatal("context ended by looking")
	}
	inc.finish(ErrTrustLost)
	inc.cancel(ErrClosed)
	if got := inc.ctx.Err(); got == nil {
		t.Fatal("context lives on")
	}

	inc = newIncarnation(t.Context(), c, 2, 1, at(8*time.Second))
	now = at(8 * time.Second)
	if inc.extend(at(20 * time.Second)) {
		t.Fatal("extended by a proof that came too late, though nobody had looked")
	}
}

// A random ensemble. Answers to proofs say that the leader held the session alive, but its timer is reset only by a connect
// request, and by the follower's reports of what it heard since the last one. At a random moment everything is cut. Trust must
// end before the leader's timer runs out.
func TestTrustEndsBeforeTheLeadersTimer(t *testing.T) {
	const T = 6 * time.Second
	worst := T
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
		report := T/12 + upTo(T/12+1) // half a tick; a tick is at most T/3
		nextReport := upTo(report)
		cut := seconds(1) + upTo(3*T)
		tr := trust{timeout: T, minTimeout: T}
		rtt := time.Duration(0)
		heard, touched := false, time.Duration(0)
		now := time.Duration(0)
		tr.connected(at(0), T)
		for now < cut {
			step := T / 6
			if rng.IntN(5) == 0 {
				step = upTo(T) // the process was frozen
			}
			arrives := now + step + upTo(rtt+time.Millisecond)
			for nextReport <= min(arrives, cut) {
				if heard {
					touched, heard = nextReport, false
				}
				nextReport += report
			}
			now += step
			if touched+T <= now || arrives > cut {
				break // expired, or cut off
			}
			if rng.IntN(8) == 0 {
				tr.connected(at(now), T)
				touched = now
			} else {
				tr.prove(at(now))
				heard = true
			}
			now = max(now, arrives)
		}
		// The follower had not reported all that it heard when everything was cut: that is lost.
		end, _ := tr.end()
		margin := touched + T - end.mono
		if margin < 0 {
			t.Fatalf("seed %d: trusted until %v, the leader ends the session at %v", seed, end.mono, touched+T)
		}
		worst = min(worst, margin)
	}
	t.Logf("smallest margin %v at T = %v", worst, T)
}

// A leader that has lost its quorum goes on answering connect requests, on a connection that flaps. The new leader's timers begin
// in full when it is elected.
func TestTrustThroughADeposedLeader(t *testing.T) {
	const T = 6 * time.Second
	for seed := range uint64(5_000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		tr := trust{timeout: T, minTimeout: T}
		tr.connected(at(0), T)
		deposed := time.Duration(0)
		for range 1 + rng.IntN(10) {
			tr.prove(at(deposed))
			deposed += T / 6
		}
		for now := deposed; now < deposed+3*T; now += time.Duration(rng.Int64N(int64(T))) {
			tr.writing(at(now))
			tr.connected(at(now), T)
			if end, _ := tr.end(); end.mono > deposed+T {
				t.Fatalf("seed %d: trusted until %v, the new leader ends the session at %v", seed, end.mono, deposed+T)
			}
		}
	}
}

func TestNoTrustWithoutProof(t *testing.T) {
	tr := trust{timeout: 6 * time.Second, minTimeout: 6 * time.Second}
	tr.writing(at(0))
	tr.connected(at(0), 6*time.Second)
	if end, ok := tr.end(); ok {
		t.Errorf("trusted until %v by a connect request alone", end)
	}
}

func TestTrustKeepsLittle(t *testing.T) {
	tr := trust{timeout: 6 * time.Second, minTimeout: 6 * time.Second}
	for i := range 10_000 {
		tr.prove(at(time.Duration(i) * 100 * time.Millisecond))
	}
	if len(tr.signs) > 12 || !slices.IsSortedFunc(tr.signs, func(a, b instant) int { return int(a.mono - b.mono) }) {
		t.Errorf("%d signs kept", len(tr.signs))
	}
}

// A wall clock that is set back does not hide a suspension that comes after.
func TestSteadyClock(t *testing.T) {
	var raw instant
	now := clock(func() instant { return raw }).steady()
	pass := func(mono, wall time.Duration) instant {
		raw.mono += mono
		raw.wall += wall
		return now()
	}
	start := pass(0, 0)
	elapsed := func(what string, i instant, want time.Duration) {
		t.Helper()
		if got := max(i.mono-start.mono, i.wall-start.wall); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	elapsed("a second", pass(time.Second, time.Second), time.Second)
	elapsed("set back by an hour", pass(time.Second, time.Second-time.Hour), 2*time.Second)
	elapsed("suspended for a minute", pass(0, time.Minute), time.Minute+2*time.Second)
	elapsed("set back again", pass(time.Second, -time.Hour), time.Minute+3*time.Second)
	elapsed("suspended again", pass(0, time.Minute), 2*time.Minute+3*time.Second)
	for range 1000 { // read a bit late, now one and now the other
		pass(time.Millisecond, -time.Millisecond)
		pass(time.Millisecond, 3*time.Millisecond)
	}
	elapsed("2 s read badly", pass(0, 0), 2*time.Minute+5*time.Second)
	elapsed("set to the right time", pass(0, 2*time.Hour), 2*time.Hour+2*time.Minute+5*time.Second)
	elapsed("and back", pass(time.Second, -2*time.Hour), 2*time.Hour+2*time.Minute+6*time.Second)
}

// New's clock is a steady one. No test can set back the clocks that it reads, so this one looks at which function it is.
func TestNewTakesASteadyClock(t *testing.T) {
	s, err := New([]string{"zk"}, Options{})
	noerr.Must(t, err)
	name := func(c clock) string { return runtime.FuncForPC(reflect.ValueOf(c).Pointer()).Name() }
	if got := name(s.now); !strings.Contains(got, "steady") || strings.Contains(name(newClock()), "steady") {
		t.Errorf("the clock is %s", got)
	}
}

func BenchmarkClock(b *testing.B) {
	for name, now := range map[string]clock{"plain": newClock(), "steady": newClock().steady()} {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					now()
				}
			})
		})
	}
}
