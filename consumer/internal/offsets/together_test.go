package offsets

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// trip is how long a request to tripStore takes.
const trip = 5 * time.Millisecond

// tripStore takes a time for each commit.
type tripStore struct{ MemoryStore }

func (s *tripStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	time.Sleep(trip)
	return s.MemoryStore.Commit(ctx, cs)
}

// The last commits of partitions that are given up together are one request. A partition whose handler takes its time holds the
// others up for lastWait, and one that is given up alone waits for nothing, nor does one whose marks are stored.
func TestLastCommitsTravelTogether(t *testing.T) {
	for name, c := range map[string]struct {
		givenUp, asked, marked, requests int
		within                           time.Duration
	}{
		"all at once":     {givenUp: 64, asked: 64, marked: 64, requests: 1, within: trip},
		"one is slow":     {givenUp: 64, asked: 63, marked: 64, requests: 1, within: lastWait + trip},
		"one is stored":   {givenUp: 64, asked: 63, marked: 63, requests: 1, within: trip},
		"one is given up": {givenUp: 1, asked: 1, marked: 64, requests: 1, within: trip},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := &tripStore{}
			opts := optionsOn(store, true)
			opts.Interval = time.Hour
			kept := map[kiel.Partition]bool{}
			for i := c.givenUp; i < 64; i++ {
				kept[tp("t", int32(i))] = true
			}
			opts.Kept = func() map[kiel.Partition]bool { return kept }
			cm, stop := running(t, opts)
			defer stop()
			var trackers []*Tracker
			for i := range int32(64) {
				trackers = append(trackers, cm.OpenFound(tp("t", i), newClaim(t), sarama.Uuid{}, 0, ""))
			}
			for _, tr := range trackers[:c.marked] {
				tr.Mark(1, "")
			}
			began, done := time.Now(), make(chan error)
			for _, tr := range trackers[:c.asked] {
				go func() { done <- cm.CommitLast(t.Context(), tr) }()
			}
			for range c.asked {
				noerr.Want(t, <-done)
			}
			assert.Equal(t, time.Since(began), c.within, "the last commit was stored after")
			assert.Equal(t, len(store.Commits()), c.requests, "requests")
		})
	}
}

// A commit for which the program asks waits for no partition that is given up, nor does the last commit of one when the member's
// time is over.
func TestOnlyLastCommitsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tripStore{}
		opts := optionsOn(store, true)
		opts.Interval = time.Hour
		opts.Kept = func() map[kiel.Partition]bool { return nil }
		cm, stop := running(t, opts)
		a, b := cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 0, ""), cm.Open(tp("t", 1), newClaim(t), sarama.Uuid{}, 0, "")
		b.Mark(1, "")
		began := time.Now()
		noerr.Want(t, cm.Commit(t.Context(), a))
		assert.Equal(t, time.Since(began), trip, "a commit of the program took")
		a.Mark(1, "")
		done := make(chan error)
		go func() { done <- cm.CommitLast(t.Context(), a) }()
		synctest.Wait() // it waits for b
		began = time.Now()
		stop()
		if d := time.Since(began); d > trip {
			t.Errorf("Run went on for %v after the end", d)
		}
		<-done
	})
}

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
		bubble.Run(t, order, func(t *testing.T) {
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
			assert.Equal(t, store.Get(p).Offset, 100, "stored")
			if want := []notice{{q, 1, true}, {q, 1, true}, {p, 100, true}}; !sameElements(notices, want) {
				t.Errorf("notified of %v, want %v in any order", notices, want)
			}
			for _, ps := range store.requests {
				slices.SortFunc(ps, kiel.Partition.Compare)
				assert.Equal(t, len(slices.Compact(slices.Clone(ps))), len(ps), "different partitions in the request %v", ps)
			}
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
