package allocfn_test

import (
	"fmt"
	"testing"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
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
					noerr.Last(b)(way.f(in))
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
					noerr.Last(b)(allocfn.Call(f, in))
				}
			})
		}
	}
}
