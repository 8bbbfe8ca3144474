package offsets

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if d := time.Since(began); d != c.within {
					t.Errorf("the last commit was stored after %v, want %v", d, c.within)
				}
				if n := len(store.Commits()); n != c.requests {
					t.Errorf("%d requests, want %d", n, c.requests)
				}
			})
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
		if err := cm.Commit(t.Context(), a); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != trip {
			t.Errorf("a commit of the program took %v, want %v", d, trip)
		}
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
