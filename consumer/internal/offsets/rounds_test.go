package offsets

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

// requestStore is a MemoryStore that keeps the partitions of each request.
type requestStore struct {
	MemoryStore
	requests [][]kiel.Partition
}

func (s *requestStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	var ps []kiel.Partition
	for _, c := range cs {
		ps = append(ps, c.Partition)
	}
	s.requests = append(s.requests, ps)
	return s.MemoryStore.Commit(ctx, cs)
}

// A claim was deleted by somebody, and the same member has claimed the partition anew. The last commit under the lost claim and
// the first one under the new claim wait for the same request. Answers go by partition, so two Trackers of one partition in a
// request would share one: the refused commit would count, and be notified, as stored, or the stored one as refused.
func TestTrackersOfOnePartitionHaveTheirOwnAnswers(t *testing.T) {
	p, q := tp("t", 3), tp("t", 4)
	for _, order := range []string{"lost, anew", "anew, lost"} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(requestStore)
				cm, stop := committerOn(t, store, true)
				defer stop()
				type notice struct {
					p      kiel.Partition
					offset int64
					dated  bool
				}
				var notices []notice
				cm.options.Notify = func(c Committed, _ func()) bool {
					notices = append(notices, notice{c.Partition, c.Offset, !c.Since.IsZero()})
					return false
				}
				claim := newClaim(t)
				lost := cm.Open(p, claim, sarama.Uuid{}, 100, "")
				lost.Mark(182, "")
				claim.lose()
				anew := cm.Open(p, newClaim(t), sarama.Uuid{}, 100, "")
				busy := cm.Open(q, newClaim(t), sarama.Uuid{}, 1, "")

				store.Block = make(chan struct{})
				asked := []*Tracker{busy, lost, anew, busy}
				if order == "anew, lost" {
					asked[1], asked[2] = anew, lost
				}
				answers := make([]error, len(asked))
				for i, tr := range asked { // the first is under way, the others wait together
					go func() { answers[i] = cm.Commit(t.Context(), tr) }()
					synctest.Wait()
				}
				close(store.Block)
				synctest.Wait()

				for i, tr := range asked {
					if refused := errors.Is(answers[i], ErrLost); refused != (tr == lost) || answers[i] != nil && tr != lost {
						t.Errorf("commit %d of %s at %d: %v", i, tr.partition, tr.next, answers[i])
					}
				}
				if got := store.Get(p).Offset; got != 100 {
					t.Errorf("stored %d, want the position of the new claim", got)
				}
				if want := []notice{{q, 1, true}, {q, 1, true}, {p, 100, true}}; !sameElements(notices, want) {
					t.Errorf("notified of %v, want %v in any order", notices, want)
				}
				for _, ps := range store.requests {
					slices.SortFunc(ps, kiel.Partition.Compare)
					if len(slices.Compact(slices.Clone(ps))) != len(ps) {
						t.Errorf("a request has two commits of one partition: %v", ps)
					}
				}
			})
		})
	}
}

func sameElements[T comparable](got, want []T) bool {
	count := map[T]int{}
	for _, e := range got {
		count[e]++
	}
	for _, e := range want {
		count[e]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// The newest Tracker of a partition is committed last, in whatever order they were asked for.
func TestRoundsKeepTheOrderOfOpening(t *testing.T) {
	c := NewCommitter(Options{})
	all := map[*Tracker]content{}
	for _, id := range []int32{1, 2, 1, 1, 3} {
		all[c.newTracker(tp("t", id), &fakeClaim{}, sarama.Uuid{}, 0, "")] = marked
	}
	for range 100 {
		last, sizes := map[kiel.Partition]int64{}, []int{}
		for _, round := range rounds(slices.Collect(maps.Keys(all))) {
			sizes = append(sizes, len(round))
			for _, tr := range round {
				if tr.number <= last[tr.partition] {
					t.Fatalf("Tracker %d of %s after Tracker %d", tr.number, tr.partition, last[tr.partition])
				}
				last[tr.partition] = tr.number
			}
		}
		if !slices.Equal(sizes, []int{3, 1, 1}) {
			t.Fatalf("rounds of %v Trackers", sizes)
		}
	}
}
