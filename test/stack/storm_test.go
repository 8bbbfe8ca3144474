package stack_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/zktest"
)

// 200 members that join within a second cause few rebalances: what a member counts from its own joining on, and what one counts
// that was there before.
func TestStormOfJoins(t *testing.T) {
	const joining, partitions, most = 200, 400, 5
	began := time.Now()
	r := random(drawSeed(t))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		first := w.join("first", setup{allocator: allocator.Options{Seed: seed(partitions)}})
		w.within(timeout, "start", func() bool { return even(partitions, first) })
		time.Sleep(10 * time.Second)
		before := first.rebalances()
		start := time.Now()
		all := []*member{first}
		at := make([]time.Duration, joining)
		for i := range at {
			at[i] = time.Duration(r.Int64N(int64(time.Second)))
		}
		slices.Sort(at)
		for i := range joining {
			time.Sleep(time.Until(start.Add(at[i])))
			all = append(all, w.join(fmt.Sprintf("m%03d", i), setup{}))
		}
		joined := time.Since(start)
		took := w.within(crashBound, "all is owned, evenly", func() bool { return even(partitions, all...) })
		time.Sleep(2 * timeout)
		highest, sum := first.rebalances()-before, first.rebalances()-before
		for _, m := range all[1:] {
			n := m.rebalances()
			highest, sum = max(highest, n), sum+n
		}
		if highest > most {
			t.Errorf("a member rebalanced %d times, allowed are %d", highest, most)
		}
		reads := w.srv.Stats().Requests
		t.Attr("joined_within", joined.Round(time.Millisecond).String())
		t.Attr("all_owned_after_the_last", took.String())
		t.Attr("rebalances_a_member_most", strconv.Itoa(highest))
		t.Attr("rebalances_a_member_mean", fmt.Sprintf("%.2f", float64(sum)/float64(len(all))))
		t.Attr("requests", fmt.Sprint(reads))
	})
	t.Attr("real_seconds", fmt.Sprintf("%.1f", time.Since(began).Seconds()))
}

// A member that comes and goes without end does not starve the others: no partition waits for longer than a bound, and they
// rebalance no more often than their coalescing allows. A lone change is acted on at once, so that is twice for each coming and
// going, or session; when there is no calm of a quiet period any more, once for each maximum delay.
func TestFlappingMember(t *testing.T) {
	const (
		partitions = 24
		healthy    = 4
	)
	type flap func(w *world, m *member, i int) *member
	leave := func(w *world, m *member, i int) *member {
		if err := m.leave(); err != nil {
			w.t.Errorf("leave: %v", err)
		}
		return w.join("z"+strconv.Itoa(i), setup{})
	}
	kill := func(_ *world, m *member, _ int) *member {
		m.killed()
		return m
	}
	crash := func(w *world, m *member, name string) *member {
		m.link.BlackHole(zktest.Both)
		go m.leave()
		return w.join(name, setup{})
	}
	again := func(w *world, m *member, _ int) *member { return crash(w, m, "z") }
	anew := func(w *world, m *member, i int) *member { return crash(w, m, "z"+strconv.Itoa(i)) }
	for name, c := range map[string]struct {
		flap    flap
		every   time.Duration
		minutes int
		bound   int           // rebalances a minute
		wait    time.Duration // that a partition is not worked on; 0 is no bound
		share   float64       // of the work that could be done
	}{
		"leaves each second":         {leave, time.Second, 2, 130, time.Second, 0.9},
		"leaves each 100 ms":         {leave, 100 * time.Millisecond, 1, 150, 3 * time.Second, 0.7},
		"session killed each second": {kill, time.Second, 2, 130, 2 * time.Second, 0.85},
		"session killed each 100 ms": {kill, 100 * time.Millisecond, 1, 190, 3 * time.Second, 0.7},
		// Who is dead keeps its share for the session timeout and a tick.
		"crashes each 3 s": {again, 3 * time.Second, 3, 60, crashBound + 3*time.Second, 0.7},
		// Under new names those who come next die before that, so there are always three dead: what falls to them waits until the
		// crashing ends. Nobody can know of whom nothing is heard yet that nothing will be.
		"crashes each 3 s under new names": {anew, 3 * time.Second, 3, 60, 0, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.net.Delay(time.Millisecond)
				defer w.end()
				var rest []*member
				for i := range healthy {
					rest = append(rest, w.join("m"+strconv.Itoa(i), setup{allocator: allocator.Options{Seed: seed(partitions)}}))
				}
				w.within(timeout, "start", func() bool { return even(partitions, rest...) })
				time.Sleep(10 * time.Second)
				before := make([]int, healthy)
				for i, m := range rest {
					before[i] = m.rebalances()
				}
				done, _ := w.progress()
				began := time.Now()
				m := w.join("z", setup{})
				flaps := 0
				for ; time.Since(began) < time.Duration(c.minutes)*time.Minute; flaps++ {
					m = c.flap(w, m, flaps)
					time.Sleep(c.every)
				}
				until, longest := w.progress()
				done = until - done
				highest := 0
				for i, m := range rest {
					highest = max(highest, (m.rebalances()-before[i])/c.minutes)
				}
				possible := partitions * c.minutes * 60 * 10
				t.Attr("flaps_a_minute", strconv.Itoa(flaps/c.minutes))
				t.Attr("rebalances_a_minute_most", strconv.Itoa(highest))
				t.Attr("longest_without_work", longest.String())
				t.Attr("work_done", fmt.Sprintf("%.1f%%", 100*float64(done)/float64(possible)))
				if highest > c.bound {
					t.Errorf("%d rebalances a minute, allowed are %d", highest, c.bound)
				}
				if c.wait > 0 && longest > c.wait {
					t.Errorf("a partition was not worked on for %v, allowed are %v", longest, c.wait)
				}
				if float64(done) < c.share*float64(possible) {
					t.Errorf("%d pieces of work were done, of %d", done, possible)
				}
				for _, m := range rest {
					if n := m.metric("kiel_drain_timeouts_total", ""); n > 0 {
						t.Errorf("%s: %v drain timeouts", m.name, n)
					}
				}
				m.quit()
				w.within(crashBound+time.Second, "the others own all", func() bool { return even(partitions, rest...) })
			})
		})
	}
}

// progress is how much all members have worked, and the longest time that a partition waited for it.
func (w *world) progress() (done int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		done += m.pieces
	}
	for id, last := range w.last {
		longest = max(longest, w.gap[id], time.Since(last))
	}
	return done, longest
}
