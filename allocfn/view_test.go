package allocfn_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func mustView(t noerr.TB, in allocfn.Input, a allocfn.Assignment) *allocfn.View {
	v, err := allocfn.NewView(in, a)
	noerr.Must(t, err)
	return v
}

func TestView(t *testing.T) {
	s := subject{f: allocfn.Rendezvous()}
	rapid.Check(t, func(t *rapid.T) {
		in := groupOf(s.drawNames(t), drawTopics(t)...)
		a := mustCall(t, s.f, in)
		v := mustView(t, in, a)
		topics := map[string][]int32{"no such topic": nil}
		for i, p := range in.Partitions {
			topics[p.Topic] = append(topics[p.Topic], int32(i))
			owner, ok := v.MemberOf(p)
			if ok != (len(a) > 0) || ok && owner != int(a[i]) || !ok && owner != -1 {
				t.Fatalf("%v: got %d, %v", p, owner, ok)
			}
		}
		for m, member := range in.Members {
			var want []int32
			for i, owner := range a {
				if int(owner) == m {
					want = append(want, int32(i))
				}
			}
			if got := v.Of(m); !slices.Equal(got, want) || !slices.Equal(v.OfName(member.Name), want) {
				t.Fatalf("member %d: got %v, want %v", m, got, want)
			}
			var all []int32
			last := ""
			for topic, indices := range v.Topics(m) {
				for _, i := range indices {
					if in.Partitions[i].Topic != topic || topic == last {
						t.Fatalf("topic %s: %v", topic, indices)
					}
				}
				last = topic
				all = append(all, indices...)
			}
			if !slices.Equal(all, want) {
				t.Fatalf("member %d by topics: got %v, want %v", m, all, want)
			}
		}
		for topic, want := range topics {
			slices.SortFunc(want, func(i, j int32) int { return int(in.Partitions[i].ID) - int(in.Partitions[j].ID) })
			if got := v.Topic(topic); !slices.Equal(got, want) {
				t.Fatalf("topic %s: got %v, want %v", topic, got, want)
			}
		}
	})
}

func TestViewEdges(t *testing.T) {
	in := groupOf([]string{"a", "b"}, topicOf("t", 3)...)
	if _, err := allocfn.NewView(in, allocfn.Assignment{0, 1}); !errors.Is(err, allocfn.ErrUnassigned) {
		t.Errorf("got %v", err)
	}
	v := mustView(t, in, allocfn.Assignment{0, 1, 0})
	for _, m := range []int{-1, 2} {
		if got := v.Of(m); len(got) > 0 {
			t.Errorf("member %d: %v", m, got)
		}
		for topic := range v.Topics(m) {
			t.Errorf("member %d: %s", m, topic)
		}
	}
	if got := v.OfName("c"); len(got) > 0 {
		t.Errorf("member c: %v", got)
	}
	for _, p := range []kiel.Partition{{Topic: "t", ID: 3}, {Topic: "u", ID: 0}, {Topic: "", ID: 0}} {
		if m, ok := v.MemberOf(p); ok {
			t.Errorf("%v: %d", p, m)
		}
	}
	for topic := range mustView(t, groupOf([]string{"a"}, append(topicOf("t", 1), topicOf("u", 1)...)...), allocfn.Assignment{0, 0}).Topics(0) {
		if topic != "t" {
			t.Errorf("went on to %s", topic)
		}
		break
	}
	// What one appends is not written into another's part.
	_ = append(v.Of(0), 7)
	if got := v.Of(1); !slices.Equal(got, []int32{1}) {
		t.Errorf("b has %v", got)
	}
}

func ExampleView() {
	in := allocfn.Input{
		Members:    []allocfn.Member{{Name: "a"}, {Name: "b"}},
		Partitions: []kiel.Partition{{Topic: "orders", ID: 0}, {Topic: "orders", ID: 1}, {Topic: "refunds", ID: 0}},
	}
	a, err := allocfn.Call(allocfn.RoundRobin(), in)
	if err != nil {
		panic(err)
	}
	v, err := allocfn.NewView(in, a)
	if err != nil {
		panic(err)
	}
	for topic, indices := range v.Topics(0) {
		for _, i := range indices {
			fmt.Println(topic, in.Partitions[i].ID)
		}
	}
	m, _ := v.MemberOf(kiel.Partition{Topic: "orders", ID: 1})
	fmt.Println("orders:1 is with", in.Members[m].Name)
	// Output:
	// orders 0
	// refunds 0
	// orders:1 is with b
}
