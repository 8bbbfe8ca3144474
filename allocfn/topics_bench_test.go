package allocfn_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// BenchmarkTopics measures 2,000 members and 1,000 topics of 100 partitions with several kinds of lists of topics.
func BenchmarkTopics(b *testing.B) {
	const members, partitions = 2_000, 100_000
	none, _ := shape(members, partitions)
	var names []string
	for _, p := range none.Partitions {
		names = append(names, p.Topic)
	}
	names = slices.Compact(names)
	apart := func(list []string) []string { // as members have them that read them apart
		list = slices.Clone(list)
		for i, name := range list {
			list[i] = string([]byte(name))
		}
		return list
	}
	r := rand.New(rand.NewPCG(2_000, 1_000))
	var random [][]string // 20 lists, each of about half of all topics
	for range 20 {
		random = append(random, slices.DeleteFunc(slices.Clone(names), func(string) bool { return r.IntN(2) == 0 }))
	}
	for _, kind := range []struct {
		name string
		list func(m int) []string
	}{
		{"none", func(int) []string { return nil }},
		{"one-list", func(int) []string { return names }},
		{"equal-lists", func(int) []string { return apart(names) }},
		{"two-lists", func(m int) []string { return names[:len(names)-m%2] }},
		{"20-lists", func(m int) []string { return random[m%20] }},
		{"20-lists-apart", func(m int) []string { return apart(random[m%20]) }},
		{"each-its-own", func(int) []string {
			return slices.DeleteFunc(slices.Clone(names), func(string) bool { return r.IntN(2) == 0 })
		}},
		{"one-topic-each", func(m int) []string { return names[m%len(names):][:1] }},
	} {
		in := none
		in.Members = slices.Clone(none.Members)
		for m := range in.Members {
			in.Members[m].Topics = kind.list(m)
		}
		for _, f := range topicFuncs() {
			b.Run(fmt.Sprintf("%s/%s", kind.name, f.Name), func(b *testing.B) {
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
