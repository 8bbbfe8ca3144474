package functions_test

import (
	"fmt"
	"testing"

	"github.com/kielgo/kiel/test/bench/functions"
)

// BenchmarkListsToMaps measures the way from lists of members and partitions to nested maps, beside franz-go's balancer, whose
// way is as long: from members' metadata to nested maps. Members ask for the same topics, and then for topics that differ.
func BenchmarkListsToMaps(b *testing.B) {
	for _, s := range []functions.Size{
		{Members: 10, Partitions: 1_000, TopicSize: 10},
		{Members: 10, Partitions: 1_000, TopicSize: 100},
		{Members: 100, Partitions: 1_000, TopicSize: 100},
		{Members: 100, Partitions: 10_000, TopicSize: 100},
		{Members: 100, Partitions: 10_000, TopicSize: 1_000},
		{Members: 1_000, Partitions: 10_000, TopicSize: 1_000},
		{Members: 1_000, Partitions: 100_000, TopicSize: 100},
		{Members: 1_000, Partitions: 100_000, TopicSize: 1_000},
	} {
		g := functions.NumberedGroup(s.Members, s.Partitions, s.TopicSize)
		size := fmt.Sprintf("%dx%d in topics of %d", s.Members, s.Partitions, s.TopicSize)
		b.Run(size+"/same", func(b *testing.B) { benchmarkBeside(b, g) })
		b.Run(size+"/differ", func(b *testing.B) { benchmarkBeside(b, g.Differing()) })
	}
}

// benchmarkBeside measures ours and franz-go's for one group.
func benchmarkBeside(b *testing.B, g functions.Group) {
	b.Helper()
	for _, c := range functions.Contestants() {
		if c.Name != functions.ListsToMaps && (c.Library != "franz-go" || c.Name != functions.StickyFresh) {
			continue
		}
		b.Run(c.Library, func(b *testing.B) {
			run, err := c.Prepare(g)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := run.Plan(); err != nil {
					b.Fatal(err)
				}
			}
			if err := run.Check(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
