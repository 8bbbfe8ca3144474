package fetch

import (
	"testing"
	"testing/synctest"
	"time"
)

// The connections of a broker keep memory for answers: no more than MaxBytes together, though both have large answers.
func TestMemoryOfConnections(t *testing.T) {
	const limit, parts = 8 << 20, 8
	inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		b := batch{values: wide(20, 1000)}
		for id := range int32(parts) {
			k.add(id, many(200, b)...)
		}
		k.add(parts) // has the first connection wait
		var ps []*Partition
		for id := range int32(parts + 1) {
			ps = append(ps, open(t, x, id, 0, -1))
		}
		most := 0
		for range 60 {
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			for _, p := range ps[:parts] {
				for range 3 {
					if _, _, err := p.take(); err != nil {
						t.Fatal(err)
					}
				}
			}
			synctest.Wait()
			sum := 0
			// A connection's memory changes when an answer comes. The cluster locks its mu before it sends one, and none is on
			// its way here.
			k.mu.Lock()
			x.mu.Lock()
			for _, n := range x.nodes {
				for _, l := range n.links {
					if l.tap != nil {
						sum += cap(l.tap.memory)
					}
				}
			}
			x.mu.Unlock()
			k.mu.Unlock()
			most = max(most, sum)
		}
		if t.Logf("connections keep %d KB of MaxBytes %d KB", most>>10, limit>>10); most > limit || most < limit/2 {
			t.Error("not what the package's page says")
		}
	})
}
