package allocfn_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// subject is a function under test, with what it promises.
type subject struct {
	f        allocfn.Func
	numbered bool // members must be numbered
	total    bool // the spread over all partitions is at most one
	perTopic bool // and that of each topic
	weighted bool // members' weights count
}

func subjects() []subject {
	return []subject{
		{f: allocfn.Ordinal(), numbered: true, total: true},
		{f: allocfn.Rendezvous()},
		{f: allocfn.CoPartitioned()},
		{f: allocfn.TopicBalanced(), total: true, perTopic: true, weighted: true},
	}
}

// groupOf makes a group of members of these names, sorted, with partitions.
func groupOf(names []string, partitions ...kiel.Partition) allocfn.Input {
	in := allocfn.Input{Partitions: slices.Clone(partitions)}
	for _, name := range slices.Sorted(slices.Values(names)) {
		in.Members = append(in.Members, allocfn.Member{Name: name})
	}
	kiel.SortPartitions(in.Partitions)
	return in
}

// topicOf returns the partitions 0 to n-1 of a topic.
func topicOf(topic string, n int) []kiel.Partition {
	ps := make([]kiel.Partition, n)
	for i := range ps {
		ps[i] = kiel.Partition{Topic: topic, ID: int32(i)}
	}
	return ps
}

func numberedNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

func (s subject) drawNames(t *rapid.T) []string {
	if s.numbered {
		prefix := rapid.SampledFrom([]string{"", "web", "a-1", "é😀", "x-", strings.Repeat("x", 300)}).Draw(t, "prefix")
		return numberedNames(prefix, rapid.IntRange(0, 20).Draw(t, "members"))
	}
	name := rapid.OneOf(
		rapid.StringMatching(`[a-z]{1,3}:[0-9]{1,4}`),
		rapid.StringN(1, 5, -1),
		rapid.StringMatching(`[aé😀]{1,4}`),
		rapid.Just(strings.Repeat("x", 300)),
	)
	return rapid.SliceOfNDistinct(name, 0, 20, rapid.ID).Draw(t, "members")
}

// drawTopics draws whole topics, topics with gaps, and topics of one partition.
func drawTopics(t *rapid.T) []kiel.Partition {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-cé][-.0-9]{0,2}`), 0, 6, rapid.ID).Draw(t, "topics")
	var ps []kiel.Partition
	for _, name := range names {
		topic := topicOf(name, rapid.SampledFrom([]int{1, 2, 3, 4, 6, 10, 12, 20, 41}).Draw(t, "count"))
		gaps := rapid.IntRange(0, 3).Draw(t, "gaps") == 0
		for _, p := range topic {
			if !gaps || rapid.Bool().Draw(t, "there") {
				ps = append(ps, p)
			}
		}
	}
	kiel.SortPartitions(ps)
	return ps
}

func mustCall(t noerr.TB, f allocfn.Func, in allocfn.Input) allocfn.Assignment {
	t.Helper()
	a, err := allocfn.Call(f, in)
	noerr.Must(t, err)
	return a
}

func mustMeasure(t noerr.TB, f allocfn.Func, before, after allocfn.Input) allocfn.Movement {
	t.Helper()
	m, err := allocfn.Measure(allocfn.Plan{before, mustCall(t, f, before)}, allocfn.Plan{after, mustCall(t, f, after)})
	noerr.Must(t, err)
	return m
}

// checkPromises checks what s promises of its result for in: Measure counts.
func (s subject) checkPromises(t *rapid.T, in allocfn.Input) {
	t.Helper()
	m := mustMeasure(t, s.f, in, in)
	if s.total && m.Total.After.Spread() > 1 {
		t.Fatalf("spread %d in %v", m.Total.After.Spread(), m)
	}
	for _, c := range m.Topics {
		if s.perTopic && c.After.Spread() > 1 {
			t.Fatalf("spread %d in topic %s", c.After.Spread(), c.Topic)
		}
	}
	if m.Total.Moved != 0 {
		t.Fatalf("the same input twice: %v", m)
	}
}

func TestStateless(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.f.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				names, ps := s.drawNames(t), drawTopics(t)
				in := groupOf(names, ps...)
				text := fmt.Sprint(in)
				a := mustCall(t, s.f, in)
				if after := fmt.Sprint(in); after != text {
					t.Fatalf("the input was changed to %s", after)
				}
				s.checkPromises(t, in)
				// The same for any order in which names come in.
				again := groupOf(rapid.Permutation(names).Draw(t, "names"), rapid.Permutation(ps).Draw(t, "ps")...)
				if b := mustCall(t, s.f, again); !slices.Equal(a, b) {
					t.Fatalf("another order: %v and %v", a, b)
				}
				// The same for members that say where they run and what they can bear.
				weight := rapid.IntRange(0, 3)
				if s.weighted {
					weight = rapid.Just(weight.Draw(t, "all weights"))
				}
				for i := range again.Members {
					m := &again.Members[i]
					m.Weight, m.Zone, m.Topics = weight.Draw(t, "weight"), "z", []string{"a"}
				}
				if b := mustCall(t, s.f, again); !slices.Equal(a, b) {
					t.Fatalf("with weights and zones: %v and %v", a, b)
				}
				// Spelt oddly the partitions are the same, and so are their owners.
				odd := in
				odd.Places = make([]int32, len(ps))
				for i := range odd.Places {
					odd.Places[i] = int32(2 * i)
				}
				if b := mustCall(t, s.f, odd); !slices.Equal(a, b) {
					t.Fatalf("with places: %v and %v", a, b)
				}
			})
		})
	}
}

func TestStatelessEdges(t *testing.T) {
	for _, s := range subjects() {
		name := func(n int) []string {
			if s.numbered {
				return numberedNames("m", n)
			}
			return []string{"a", "b", "c", strings.Repeat("ü", 150), "😀"}[:n]
		}
		for _, in := range []allocfn.Input{
			{},
			groupOf(name(1)),
			groupOf(nil, topicOf("t", 1)...),
			groupOf(name(1), topicOf("t", 1)...),
			groupOf(name(5), topicOf("t", 1)...),
			groupOf(name(5), topicOf("t", 3)...),
			groupOf(name(1), topicOf("t", 30)...),
			groupOf(name(3), kiel.Partition{Topic: strings.Repeat("x", 249), ID: 1<<31 - 1}, kiel.Partition{Topic: "", ID: 0}),
			groupOf(name(5), append(topicOf("one", 1), append(topicOf("two", 1), topicOf("t", 12)...)...)...),
		} {
			a := mustCall(t, s.f, in)
			if err := allocfn.Check(in, a); err != nil {
				t.Errorf("%s: %v", s.f.Name, err)
			}
			// Not by way of Call, which spares the function some of these.
			if b, err := s.f.Assign(in); err != nil || len(in.Members) > 0 && !slices.Equal(a, b) || len(in.Members) == 0 && len(b) > 0 {
				t.Errorf("%s: %v and %v, %v", s.f.Name, a, b, err)
			}
		}
		// Whoever does not ask Call gets an answer for nonsense too, or an error.
		nonsense := allocfn.Input{Partitions: []kiel.Partition{{Topic: "t", ID: 0}, {Topic: "t", ID: 0}, {Topic: "a", ID: 3}, {Topic: "t", ID: -1}, {Topic: "t", ID: 2}}}
		for _, name := range append(name(3), name(1)...) {
			nonsense.Members = append(nonsense.Members, allocfn.Member{Name: name, Weight: -1})
		}
		if a, err := s.f.Assign(nonsense); err == nil && allocfn.Check(nonsense, a) != nil {
			t.Errorf("%s: nonsense: %v", s.f.Name, a)
		}
		if _, err := allocfn.Call(s.f, nonsense); !errors.Is(err, allocfn.ErrInput) {
			t.Errorf("%s: nonsense: %v", s.f.Name, err)
		}
	}
}

// randomNames returns names as they come in groups: many alike.
func randomNames(r *rand.Rand, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("host-%x:%d", r.Uint32(), i)
	}
	return names
}
