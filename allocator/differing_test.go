package allocator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
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
							owner, ok := s.Owner(p)
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
					if err := w.nodes[name].end(); err != nil {
						w.Error(err)
					}
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
