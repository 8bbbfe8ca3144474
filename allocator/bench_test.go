package allocator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
)

// BenchmarkCompute is what one change costs a member, in a group of 100.
func BenchmarkCompute(b *testing.B) {
	o, err := Options{}.withDefaults()
	noerr.Must(b, err)
	data, err := newRecord(o).encode()
	noerr.Must(b, err)
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
		noerr.Must(b, err)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				r := computeMapping(&inputs{}, ms, set, nil, o)
				if r.err != nil || len(r.mapping.share("member-000")) == 0 {
					b.Fatal(r.err)
				}
			}
		})
	}
}

// BenchmarkJoin is what a join costs another member of a group of 1,000 members and 100,000 partitions: the mapping, its own
// share of it, and the owner of each partition of that, which whoever claims them asks for.
func BenchmarkJoin(b *testing.B) {
	ms, set, o := groupOf(b, 1001, 100_000)
	b.ReportAllocs()
	known, before := &inputs{}, newMapping(allocfn.Input{}, "", nil)
	for i := 0; b.Loop(); i++ {
		r := computeMapping(known, ms[:1000+i%2], set, nil, o)
		if r.err != nil {
			b.Fatal(r.err)
		}
		known = r.inputs
		r.mapping.follow(before, occasion{self: "member-0000", joined: true})
		r.mapping.hashes = hashesOf(r.mapping, before)
		before = r.mapping
		s := &Snapshot{mapping: r.mapping, mine: r.mapping.share("member-0000")}
		for _, p := range s.Mine() {
			if name, ok := s.Planned(p); !ok || name != "member-0000" {
				b.Fatal(name, ok)
			}
		}
	}
}

// BenchmarkHashes is what the hashes of a mapping cost beside Balanced: of a mapping after a join, when nothing is known of
// partitions and zones, and when all partitions have a zone that is not known.
func BenchmarkHashes(b *testing.B) {
	for _, size := range []struct{ members, partitions int }{{1000, 10_000}, {2000, 1_000_000}} {
		ms, set, o := groupOf(b, size.members, size.partitions)
		o.Func, o.PythonFunc = allocfn.Balanced(), allocfn.Balanced().ID()
		for i := range ms {
			ms[i].Data = nil
		}
		r := computeMapping(&inputs{}, ms, set, nil, o)
		if r.err != nil {
			b.Fatal(r.err)
		}
		zoned := *r.mapping
		zoned.in.Zones, zoned.occasion.zones = make(map[kiel.Partition]string), 1
		for i, p := range zoned.in.Partitions {
			zoned.in.Zones[p] = fmt.Sprintf("zone-%d", i%3)
		}
		name := fmt.Sprintf("%dx%d/", size.members, size.partitions)
		b.Run(name+"balanced", func(b *testing.B) {
			for b.Loop() {
				noerr.Last(b)(allocfn.Call(o.Func, r.mapping.in))
			}
		})
		before := *r.mapping
		before.hashes = hashesOf(r.mapping, newMapping(allocfn.Input{}, "", nil))
		for what, of := range map[string]struct{ now, before *mapping }{
			"join": {r.mapping, &before}, "partitions": {r.mapping, newMapping(allocfn.Input{}, "", nil)}, "zones": {&zoned, &before},
		} {
			b.Run(name+what, func(b *testing.B) {
				for b.Loop() {
					hashesOf(of.now, of.before)
				}
			})
		}
	}
}

// BenchmarkPatterns is what patterns cost the members of a group of 2,000, which have 20 different lists of 5 patterns, for a set
// of 1,000 topics: at first, and when one topic more comes into the set. The worst list that a record may have is for topics with
// the longest of names.
func BenchmarkPatterns(b *testing.B) {
	const members, topics = 2000, 1000
	o, err := Options{}.withDefaults()
	noerr.Must(b, err)
	everyday := func(i int) (list []string) {
		for k := range 4 {
			list = append(list, fmt.Sprintf(`^(orders|payments|parcels)-%c[a-z]*\.v[0-9]+`, 'a'+(i%20+k)%20))
		}
		return append(list, fmt.Sprintf("!^.*-%c.*test.*", 'a'+i%20))
	}
	worst := func(int) []string {
		return []string{"^.*" + strings.Repeat(".?", 480) + "z"}
	}
	for name, group := range map[string]struct {
		list  func(member int) []string
		topic string
	}{
		"none":     {func(int) []string { return []string{"t"} }, "orders-%c%s.v%04d"},
		"everyday": {everyday, "orders-%c%s.v%04d"},
		"worst":    {worst, "orders-%c%s" + strings.Repeat("a", 230) + "v%04d"},
	} {
		var ms []party.Member
		for i := range members {
			ms = append(ms, asking(fmt.Sprintf("m%04d", i), group.list(i)...))
		}
		var set []string
		for i := range topics + 1 {
			set = append(set, fmt.Sprintf(group.topic+":0", 'a'+i%20, "bc", i))
		}
		slices.Sort(set)
		b.Run(name+"/first", func(b *testing.B) {
			for b.Loop() {
				if r := computeMapping(&inputs{}, ms, set, nil, o); r.err != nil {
					b.Fatal(r.err)
				}
			}
		})
		b.Run(name+"/topic", func(b *testing.B) {
			known := computeMapping(&inputs{}, ms, set[1:], nil, o).inputs
			for b.Loop() {
				if r := computeMapping(known, ms, set, nil, o); r.err != nil {
					b.Fatal(r.err)
				}
			}
		})
	}
}
