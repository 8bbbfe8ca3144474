package offsets

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

// Committed.Since is when a commit was written: the commit may have waited for long before, and its answer may come after the end
// of trust.
func TestCommittedTellsWhenItWasSent(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		store.Block = make(chan struct{})
		store.Slow = make(chan struct{})
		var got []Committed
		cm.options.Notify = func(e Committed, _ func()) bool { got = append(got, e); return false }
		h := newClaim(t)
		b := cm.Open(tp("t", 0), h, sarama.Uuid{}, 0, "")
		sent := time.Now().Add(3 * time.Second)
		time.AfterFunc(3*time.Second, func() { close(store.Block) })
		time.AfterFunc(5*time.Second, func() {
			h.distrust.Store(true)
			close(store.Slow)
		})
		if err := cm.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || !got[0].Since.Equal(sent) {
			t.Errorf("got %+v, want it sent at %v", got, sent)
		}
	})
}

// Close waits for a commit in flight, of a start position or a repeat, too: the commit must not arrive after the next owner's
// commits.
func TestCommitUnderWayIsWaitedFor(t *testing.T) {
	const answer = 3 * time.Second
	for name, giveUp := range map[string]func(*Committer, context.Context, *Tracker){
		"opening was interrupted": func(cm *Committer, claim context.Context, tr *Tracker) { cm.Close(claim, tr) },
		"nothing was marked": func(cm *Committer, claim context.Context, tr *Tracker) {
			tr.mu.Lock()
			tr.dirty = false // so that what is under way is a repetition
			tr.mu.Unlock()
			_ = cm.CommitLast(claim, tr)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
				store.Block = make(chan struct{})
				h := newClaim(t)
				b := cm.Open(tp("t", 0), h, sarama.Uuid{}, 0, "")
				go func() { _ = cm.Commit(t.Context(), b) }()
				synctest.Wait() // it is under way
				time.AfterFunc(answer, func() { close(store.Block) })
				start := time.Now()
				giveUp(cm, h.Context(), b)
				if d := time.Since(start); d != answer {
					t.Errorf("given up after %v, the answer came after %v", d, answer)
				}
			})
		})
	}
}

// A commit that is in flight when the time to close its partition is over, or when its claim is lost, is aborted with its
// connection. One abort is enough for all commits of the request, and one time limit holds for all.
func TestCommitOnTheWireIsThrownAway(t *testing.T) {
	const n = 3
	for name, lost := range map[string]bool{"too late": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
				store.Slow = make(chan struct{})
				aborted := 0
				cm.options.Abort = func() {
					aborted++
					time.AfterFunc(time.Millisecond, func() { close(store.Slow) }) // when nobody waits for it any more
				}
				var holders []*fakeClaim
				var trackers []*Tracker
				for i := range int32(n) {
					holders = append(holders, newClaim(t))
					trackers = append(trackers, cm.Open(tp("t", i), holders[i], sarama.Uuid{}, 0, ""))
				}
				time.Sleep(1500 * time.Millisecond) // all are sent, and no answer comes
				start, done := time.Now(), make(chan error)
				for i, b := range trackers {
					go func() { done <- cm.CommitLast(holders[i].Context(), b) }()
				}
				want := LastCommitTimeout
				if lost {
					want = 4 * time.Second
					time.Sleep(want)
					for _, h := range holders {
						h.lose()
					}
				}
				for range n {
					if err := <-done; err == nil {
						t.Error("committed without an answer")
					}
				}
				if d := time.Since(start); d != want {
					t.Errorf("given up after %v, want %v", d, want)
				}
				if aborted != 1 {
					t.Errorf("connections were thrown away %d times", aborted)
				}
			})
		})
	}
}

// silentStore never answers. When its connection is aborted, it sends the commits that are still authorized again.
type silentStore struct {
	MemoryStore
	aborts chan struct{}
	wire   atomic.Pointer[map[kiel.Partition]bool] // what was sent and not thrown away
}

func (s *silentStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	out := map[kiel.Partition]error{}
	for ctx.Err() == nil {
		wire := map[kiel.Partition]bool{}
		for _, e := range cs {
			if out[e.Partition] = e.Authorize(); out[e.Partition] == nil {
				wire[e.Partition] = true
			}
		}
		s.wire.Store(&wire)
		if len(wire) == 0 {
			return out
		}
		select {
		case <-s.aborts:
		case <-ctx.Done():
		}
	}
	return out
}

// A commit that was sent again on the next connection is aborted, too, when its own time is over.
func TestCommitSentAgainIsThrownAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentStore{aborts: make(chan struct{})}
		cm, stop := committerOn(t, store, true)
		defer stop()
		cm.options.Abort = func() { store.aborts <- struct{}{} }
		first, second := tp("t", 0), tp("t", 1)
		one := cm.Open(first, newClaim(t), sarama.Uuid{}, 0, "")
		two := cm.Open(second, newClaim(t), sarama.Uuid{}, 0, "")
		time.Sleep(1500 * time.Millisecond) // both are sent
		giveUp := func(b *Tracker, after time.Duration) <-chan struct{} {
			done := make(chan struct{})
			time.AfterFunc(after, func() {
				defer close(done)
				_ = cm.CommitLast(t.Context(), b)
			})
			return done
		}
		a, b := giveUp(one, 0), giveUp(two, 5*time.Second)
		<-a
		synctest.Wait()
		if wire := *store.wire.Load(); wire[first] || !wire[second] {
			t.Errorf("on the wire when the first was given up: %v", wire)
		}
		<-b
		synctest.Wait()
		if wire := *store.wire.Load(); len(wire) > 0 {
			t.Errorf("on the wire when the second was given up: %v", wire)
		}
	})
}

// A partition is given up after its last commit was observed, also when that commit was under way already.
func TestCommitIsObservedBeforeTheLastOneReturns(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		var observed atomic.Int32
		cm.options.Notify = func(_ Committed, then func()) bool {
			time.AfterFunc(time.Second, func() {
				observed.Add(1)
				then()
			})
			return true
		}
		b := cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 0, "")
		b.Mark(5, "")
		time.Sleep(1500 * time.Millisecond) // the Committer has stored it by itself, and is notifying
		if err := cm.CommitLast(t.Context(), b); err != nil || observed.Load() == 0 {
			t.Errorf("committed with %v before the commit was observed", err)
		}
	})
}
