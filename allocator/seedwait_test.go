package allocator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Members that start together all wait for the set's lock to add the same seed. When one of them has added it, the others leave
// the lock's queue.
func TestSeedThatCameMeanwhileIsNotWaitedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		zk, err := session.Start(w.Context(), []string{zktest.VirtualAddress}, session.Options{Dial: w.net.Client("other").Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer zk.Close(w.Context())
		inc, err := zk.Incarnation(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		const queue = partitions + "/lock"
		if err := inc.EnsurePath(w.Context(), queue); err != nil {
			t.Fatal(err)
		}
		holder, err := inc.Create(w.Context(), queue+"/0123456789abcdef0123456789abcdef__lock__", nil, session.EphemeralSequential)
		if err != nil {
			t.Fatal(err)
		}
		waiting := func() []string {
			names, _, err := inc.Children(w.Context(), queue)
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(names, func(name string) bool { return session.Join(queue, name) == holder })
		}
		reg := prometheus.NewRegistry()
		a := w.start("a", allocator.Options{Registerer: reg, Seed: map[string][]int32{"t": {0, 1}}})
		sleep(settle)
		if len(waiting()) != 1 {
			t.Fatalf("%v wait for the lock, want a", waiting())
		}
		if _, err := inc.Set(w.Context(), partitions, []byte(`["t:0", "t:1"]`), -1); err != nil {
			t.Fatal(err)
		}
		a.ready()
		sleep(time.Second)
		if len(waiting()) != 0 {
			t.Errorf("%v wait for the lock, though the set has the seed", waiting())
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
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
