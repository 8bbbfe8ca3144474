package allocator

import (
	"fmt"
	"testing"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/party"
)

// BenchmarkCompute is what one change costs a member, in a group of 100.
func BenchmarkCompute(b *testing.B) {
	o, err := Options{}.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	data, err := newRecord(o).encode()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{64, 1000, 40_000} {
		var ms []party.Member
		for i := range 100 {
			ms = append(ms, party.Member{Name: fmt.Sprintf("member-%03d", i), Data: data})
		}
		seed := make(map[string][]int32)
		for i := range n {
			topic := fmt.Sprintf("topic-%d", i/64)
			seed[topic] = append(seed[topic], int32(i%64))
		}
		set, err := items(seed)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				r := computeMapping(&inputs{}, ms, set, nil, o, sabotage.Rules{})
				if r.err != nil || len(r.mapping.share("member-000")) == 0 {
					b.Fatal(r.err)
				}
			}
		})
	}
}

// BenchmarkJoin is what a join costs another member of a group of 1,000 members and 100,000 partitions: the mapping, its own share
// of it, and the owner of each partition of that, which whoever claims them asks for.
func BenchmarkJoin(b *testing.B) {
	ms, set, o := groupOf(b, 1001, 100_000)
	b.ReportAllocs()
	known := &inputs{}
	for i := 0; b.Loop(); i++ {
		r := computeMapping(known, ms[:1000+i%2], set, nil, o, sabotage.Rules{})
		if r.err != nil {
			b.Fatal(r.err)
		}
		known = r.inputs
		s := &Snapshot{mapping: r.mapping, mine: r.mapping.share("member-0000")}
		for _, p := range s.Mine() {
			if name, ok := s.Owner(p); !ok || name != "member-0000" {
				b.Fatal(name, ok)
			}
		}
	}
}
