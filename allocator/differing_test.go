package allocator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

// A rolling deploy adds a topic and takes another away: a partition is at one that asks for its topic, at every step and for all
// members alike, but while a member in Python is there.
func TestTopicsThatDiffer(t *testing.T) {
	for _, fn := range []allocfn.Func{allocfn.RoundRobin(), allocfn.Range(), allocfn.Balanced(), allocfn.TopicBalanced()} {
		t.Run(fn.Name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				with := func(topics ...string) allocator.Options {
					o := allocator.Options{Func: fn, Topics: topics, Seed: make(map[string][]int32)}
					if fn.ID() != allocfn.RoundRobin().ID() {
						o.AlsoFuncs = []allocfn.Func{allocfn.RoundRobin()}
					}
					for _, topic := range topics {
						o.Seed[topic] = ids(5)
					}
					return o
				}
				asks := make(map[string]map[string]bool)
				start := func(name string, topics ...string) {
					w.start(name, with(topics...)).ready()
					asks[name] = make(map[string]bool)
					for _, topic := range topics {
						asks[name][topic] = true
					}
					sleep(time.Minute)
				}
				check := func(what string, all, unwanted int) {
					w.Helper()
					var owners []string
					for name, n := range w.nodes {
						s := n.Snapshot()
						var owned []string
						for _, p := range s.Partitions {
							owner, ok := s.Planned(p)
							if !ok || !asks[owner][p.Topic] {
								w.Errorf("%s: %s is at %q, which does not ask for it", what, p, owner)
							}
							owned = append(owned, owner)
						}
						if owners == nil {
							owners = owned
						}
						if len(owned) != all || len(s.Unwanted) != unwanted || !slices.Equal(owned, owners) || s.Err != nil {
							w.Errorf("%s: %s has %d partitions, %q unwanted, owners %v, not %v; error %v", what, name, len(owned), s.Unwanted, owned, owners, s.Err)
						}
					}
				}
				for _, name := range []string{"a", "b", "c"} {
					start(name, "t", "u")
				}
				check("at first", 10, 0)
				for i, name := range []string{"b", "a", "c"} {
					noerr.Want(w, w.nodes[name].end())
					start(name, "t", "v")
					if i < 2 {
						check(name+" is new", 15, 0)
					} else {
						check("all are new", 10, 1)
					}
				}
				w.put(members+"/d", "")
				sleep(time.Minute)
				w.agree(allocfn.RoundRobin(), []string{"a", "b", "c", "d"}, append(append(items("t", 5), items("u", 5)...), items("v", 5)...))
			})
		})
	}
}

// Members that run a function of one id with different results have the same hash of the inputs, and different hashes of the
// mapping, in the status and as gauges. There is no gauge before the first mapping, and no hash without trust.
func TestFunctionsThatDiffer(t *testing.T) {
	inWorld(t, func(w *world) {
		shifted := func(by int) allocfn.Func {
			return allocfn.Func{Name: "mine", Version: 3, Assign: func(in allocfn.Input) (allocfn.Assignment, error) {
				all := make(allocfn.Assignment, len(in.Partitions))
				for i := range all {
					all[i] = int32((i + by) % len(in.Members))
				}
				return all, nil
			}}
		}
		regs := make(map[string]*prometheus.Registry)
		start := func(name string, by int) *node {
			regs[name] = prometheus.NewRegistry()
			return w.start(name, allocator.Options{Func: shifted(by), Registerer: regs[name], Seed: map[string][]int32{"t": ids(4)}})
		}
		// hashes returns the hashes in a member's status, which its gauges have to show, too.
		hashes := func(name string) (mapping, inputs string) {
			w.Helper()
			m := w.nodes[name].Status().Mapping
			for metric, want := range map[string]string{"kiel_mapping_hash": m.Hash, "kiel_mapping_inputs_hash": m.InputsHash} {
				if got := fmt.Sprintf("%012x", uint64(value(w, regs[name], metric))); got != want {
					w.Errorf("%s of %s is %s in the status, %s as a gauge", metric, name, want, got)
				}
			}
			return m.Hash, m.InputsHash
		}
		client := w.net.Client("a")
		client.Refuse()
		a := start("a", 0)
		sleep(time.Second)
		count := func() int {
			n, err := testutil.GatherAndCount(regs["a"], "kiel_mapping_hash", "kiel_mapping_inputs_hash")
			noerr.Want(w, err)
			return n
		}
		if n := count(); n != 0 {
			w.Errorf("%d gauges before the first mapping", n)
		}
		client.Heal()
		a.ready()
		_, alone := hashes("a")
		b := start("b", 0)
		sleep(time.Minute)
		mappingA, inputsA := hashes("a")
		if mappingB, inputsB := hashes("b"); mappingA != mappingB || inputsA != inputsB || inputsA == alone {
			w.Errorf("mappings %s and %s of %s and %s, alone %s", mappingA, mappingB, inputsA, inputsB, alone)
		}
		noerr.Want(w, b.end())
		start("b", 1)
		sleep(time.Minute)
		mappingA, inputsA = hashes("a")
		if mappingB, inputsB := hashes("b"); mappingA == mappingB || inputsA != inputsB {
			w.Errorf("mappings %s and %s of %s and %s", mappingA, mappingB, inputsA, inputsB)
		}
		a.client.BlackHole(zktest.Both)
		sleep(timeout)
		if n := count(); n != 2 || value(w, regs["a"], "kiel_mapping_hash") != 0 || value(w, regs["a"], "kiel_mapping_inputs_hash") != 0 {
			w.Errorf("%d gauges without trust", n)
		}
	})
}
