package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// Differential runs random sequences of requests on zktest and on a real server.
type Differential struct {
	Real    *Server // whose options are [DifferentialOptions]; used by nobody else, unless Workers is above 1
	Old     bool    // it is ZooKeeper 3.8
	Expiry  bool    // sessions expire in each sequence
	Workers int     // sequences at the same time; more than 1 see zxids by their order only

	answers sync.Map
}

// Answers returns how many kinds of answers there were: pairs of an operation and an error code, and kinds of events.
func (d *Differential) Answers() int {
	n := 0
	for range d.answers.Range {
		n++
	}
	return n
}

// DifferentialOptions are what a server for [Differential] must have: sessions that can be left to expire in no time.
func DifferentialOptions() zktest.Options {
	return zktest.Options{TickTime: 100 * time.Millisecond, MaxSessionTimeout: sessionTimeout}
}

// Run runs the sequences of n seeds and returns how many steps they had. The first difference ends the test and is shown, in the
// shortest sequence found that has one.
func (d *Differential) Run(t *testing.T, first uint64, n int) int {
	t.Helper()
	var next, steps atomic.Int64
	var found atomic.Pointer[finding]
	var wg sync.WaitGroup
	for range d.Workers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n) && found.Load() == nil; i = next.Add(1) {
				f := &finding{seed: first + uint64(i-1)}
				f.steps = sequence(f.seed, d.Old, d.Expiry)
				f.text = d.difference(f.steps)
				if f.text != "" {
					found.CompareAndSwap(nil, f)
				}
				steps.Add(int64(len(f.steps)))
			}
		})
	}
	wg.Wait()
	if f := found.Load(); f != nil {
		before := len(f.steps)
		d.shrink(f, time.Now().Add(30*time.Second))
		again := 0
		for range 5 {
			if d.difference(f.steps) != "" {
				again++
			}
		}
		t.Fatalf("seed %d (try -seed=%d -seeds=1): %d of its %d steps make a difference, %d times in 5\n%s",
			f.seed, f.seed, len(f.steps), before, again, f.text)
	}
	return int(steps.Load())
}

// finding is a sequence with a difference, and what it looks like.
type finding struct {
	seed  uint64
	steps []step
	text  string
}

var roots atomic.Int64

// difference plays steps on the real server and on a zktest of their own, and compares.
func (d *Differential) difference(steps []step) string {
	root := fmt.Sprintf("/random-%06d", roots.Add(1))
	shape := func(s *script) { s.rankZxids, s.eventZxids, s.answers = d.Workers > 1, !d.Old, &d.answers }
	rec := &recorder{}
	defer rec.end()
	_, nw := zktest.StartVirtual(rec, DifferentialOptions())
	fake := &Server{Address: zktest.VirtualAddress, Dial: nw.Dial}
	return difference(play(d.Real, root, steps, shape), play(fake, root, steps, shape))
}

// shrink leaves out what a difference does not need: steps, half of them, a quarter, … one; then parts of multis.
func (d *Differential) shrink(f *finding, deadline time.Time) {
	try := func(less []step) bool {
		if time.Now().After(deadline) {
			return false
		}
		text := d.difference(less)
		if text != "" {
			f.steps, f.text = less, text
		}
		return text != ""
	}
	for size := len(f.steps) / 2; size > 0; {
		before := len(f.steps)
		for at := 0; at < len(f.steps); {
			if !try(slices.Delete(slices.Clone(f.steps), at, min(at+size, len(f.steps)))) {
				at += size
			}
		}
		if size > 1 || len(f.steps) == before {
			size /= 2
		}
	}
	for i, s := range f.steps {
		for j := range slices.Backward(s.parts) {
			less := slices.Clone(f.steps)
			less[i].parts = slices.Delete(slices.Clone(less[i].parts), j, j+1)
			try(less)
		}
		if s.piped {
			less := slices.Clone(f.steps)
			less[i].piped = false
			try(less)
		}
	}
}

// difference shows where two texts part; "" when they don't.
func difference(realText, testText string) string {
	if realText == testText {
		return ""
	}
	r, z := strings.Split(realText, "\n"), strings.Split(testText, "\n")
	same := 0
	for same < min(len(r), len(z)) && r[same] == z[same] {
		same++
	}
	after := func(lines []string) string { return strings.Join(lines[same:min(same+3, len(lines))], "\n  ") }
	return fmt.Sprintf("%s\nreal:\n  %s\nzktest:\n  %s", strings.Join(r[:same], "\n"), after(r), after(z))
}
