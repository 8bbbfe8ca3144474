package allocator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Members that start together all wait for the set's lock to add the same seed. When one of them has added it, the others leave
// the lock's queue.
func TestSeedThatCameMeanwhileIsNotWaitedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		zk, err := session.Start(w.Context(), []string{zktest.VirtualAddress}, session.Options{Dial: w.net.Client("other").Dial})
		noerr.Must(t, err)
		defer zk.Close(w.Context())
		inc, err := zk.Incarnation(w.Context())
		noerr.Must(t, err)
		const queue = partitions + "/lock"
		noerr.Must(t, inc.EnsurePath(w.Context(), queue))
		holder, err := inc.Create(w.Context(), queue+"/0123456789abcdef0123456789abcdef__lock__", nil, session.EphemeralSequential)
		noerr.Must(t, err)
		waiting := func() []string {
			names, _, err := inc.Children(w.Context(), queue)
			noerr.Must(t, err)
			return slices.DeleteFunc(names, func(name string) bool { return session.Join(queue, name) == holder })
		}
		reg := prometheus.NewRegistry()
		a := w.start("a", allocator.Options{Registerer: reg, Seed: map[string][]int32{"t": {0, 1}}})
		sleep(settle)
		if len(waiting()) != 1 {
			t.Fatalf("%v wait for the lock, want a", waiting())
		}
		noerr.Last(t)(inc.Set(w.Context(), partitions, []byte(`["t:0", "t:1"]`), -1))
		a.ready()
		sleep(time.Second)
		if len(waiting()) != 0 {
			t.Errorf("%v wait for the lock, though the set has the seed", waiting())
		}
		families, err := reg.Gather()
		noerr.Must(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "kiel_sharedset_updates_total" && strings.Contains(m.String(), `"error"`) && m.GetCounter().GetValue() > 0 {
					t.Errorf("an addition that was not needed counts as an error: %v", m)
				}
			}
		}
		if err := a.failed(); err != nil || a.own() != 2 {
			t.Errorf("owns %d, %v", a.own(), err)
		}
	})
}

// When the set is deleted, members on slow links take longer than QuietPeriod to add their seeds again. All members wait for all
// that the set held, and nothing moves.
func TestDeletedSetIsSeededAgainSlowly(t *testing.T) {
	tests := []struct {
		name       string
		a, b       []int32
		slowA      time.Duration
		slowB      time.Duration
		setIsWhole string
	}{
		{"one seed", ids(3), ids(3), 20 * time.Millisecond, 20 * time.Millisecond, `["t:0", "t:1", "t:2"]`},
		{"two seeds, of which one comes first", []int32{0, 1}, []int32{2, 3}, 0, 40 * time.Millisecond, `["t:0", "t:1", "t:2", "t:3"]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.pair(test.a, test.b)
				sleep(time.Minute)
				a.rebalanced()
				b.rebalanced()
				a.client.Delay(test.slowA)
				b.client.Delay(test.slowB)
				noerr.Must(t, w.srv.Delete(partitions))
				deleted := time.Now()
				for w.set() != test.setIsWhole {
					sleep(time.Millisecond)
				}
				if took := time.Since(deleted); took < 300*time.Millisecond {
					t.Errorf("the set is whole again after %v, before anybody misses it", took)
				}
				sleep(settle)
				for _, r := range append(a.rebalanced(), b.rebalanced()...) {
					if len(r.Added)+len(r.Removed) > 0 {
						t.Errorf("moved in between: +%v -%v", r.Added, r.Removed)
					}
				}
			})
		})
	}
}
