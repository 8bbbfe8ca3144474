package allocfn_test

import (
	"fmt"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// shapes are members × partitions, in topics of 100 partitions.
var shapes = [][2]int{{100, 1_000}, {1_000, 10_000}, {1_000, 100_000}}

// largeShapes are those that Balanced is measured at.
var largeShapes = [][2]int{{100, 1_000}, {1_000, 10_000}, {2_000, 100_000}, {2_000, 1_000_000}, {10_000, 1_000_000}}

// BenchmarkBalanced measures it as members call it, and alone.
func BenchmarkBalanced(b *testing.B) {
	f := allocfn.Balanced()
	call := func(in allocfn.Input) (allocfn.Assignment, error) { return allocfn.Call(f, in) }
	for _, s := range largeShapes {
		in, _ := shape(s[0], s[1])
		for _, way := range []struct {
			name string
			f    func(allocfn.Input) (allocfn.Assignment, error)
		}{{"call", call}, {"assign", f.Assign}} {
			b.Run(fmt.Sprintf("%dx%d/%s", s[0], s[1], way.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := way.f(in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func shape(n, p int) (allocfn.Input, []string) {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf("host%d:%d", i%97, 1000+i)
	}
	items := make([]string, p)
	for i := range items {
		items[i] = fmt.Sprintf("topic%d:%d", i/100, i%100)
	}
	in, _ := input(members, items)
	texts := make([]string, p)
	for i, p := range in.Partitions {
		texts[i] = p.String()
	}
	return in, texts
}

func BenchmarkCall(b *testing.B) {
	for _, f := range funcs() {
		for _, s := range shapes {
			b.Run(fmt.Sprintf("%s/%dx%d", f.Name, s[0], s[1]), func(b *testing.B) {
				in, _ := shape(s[0], s[1])
				b.ReportAllocs()
				for b.Loop() {
					if _, err := allocfn.Call(f, in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, f := range []allocfn.Func{allocfn.RoundRobin(), allocfn.Range()} {
		for _, s := range shapes {
			b.Run(fmt.Sprintf("%s/%dx%d", f.Name, s[0], s[1]), func(b *testing.B) {
				in, _ := shape(s[0], s[1])
				b.ReportAllocs()
				for b.Loop() {
					if _, err := f.Assign(in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkParseAll(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprint(s[1]), func(b *testing.B) {
			_, items := shape(s[0], s[1])
			b.ReportAllocs()
			for b.Loop() {
				kiel.ParsePartitions(items)
			}
		})
	}
}

// BenchmarkSort sorts what stands topic by topic, the numbers of a topic growing.
func BenchmarkSort(b *testing.B) {
	for _, s := range [][2]int{{1_000, 100}, {10_000, 1_000}, {100_000, 100}, {100_000, 1_000}} {
		b.Run(fmt.Sprintf("%d in topics of %d", s[0], s[1]), func(b *testing.B) {
			var given []kiel.Partition
			for i := range s[0] {
				given = append(given, kiel.Partition{Topic: fmt.Sprintf("topic-%d", i/s[1]), ID: int32(i % s[1])})
			}
			ps := make([]kiel.Partition, len(given))
			b.ReportAllocs()
			for b.Loop() {
				copy(ps, given)
				kiel.SortPartitions(ps)
			}
		})
	}
}

func BenchmarkMapping(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("%dx%d", s[0], s[1]), func(b *testing.B) {
			in, _ := shape(s[0], s[1])
			a, err := allocfn.Call(allocfn.RoundRobin(), in)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				allocfn.Mapping(in, a)
			}
		})
	}
}
