package offsets

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// Aborted transactions alone, or control records, raise the stored offset, though no handler can mark anything: else the group
// seems to lag, and retention takes the position from it.
func TestOffsetsWithoutMessagesAreCommitted(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		tr := openAt(t, cm, p, 0)
		tr.Delivered(nil, 1100)
		if b := cm.Backlog(); !b.Oldest.IsZero() {
			t.Error("counts as a mark that is not committed")
		}
		time.Sleep(2 * time.Second)
		if got := store.Get(p); got.Offset != 1100 || !got.Ours {
			t.Fatalf("stored %+v", got)
		}
		if tr.Progress().Used {
			t.Error("counts as a mark of the user")
		}
		before := len(store.Commits())
		time.Sleep(5 * time.Hour)
		if n := len(store.Commits()) - before; n > 0 {
			t.Errorf("%d commits in 5 hours in which nothing came", n)
		}
		tr.Delivered(nil, 1200)
		if err := cm.CommitLast(t.Context(), tr); err != nil || store.Get(p).Offset != 1200 {
			t.Errorf("released: stored %d, %v", store.Get(p).Offset, err)
		}
	})
}

// A position that moves all the time is committed once an interval, as marks are.
func TestOffsetsWithoutMessagesAreCommittedAsMarks(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		tr := openAt(t, cm, tp("t", 0), 0)
		before := len(store.Commits())
		for next := range int64(1000) {
			tr.Delivered(nil, next+1)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(store.Commits()) - before; n > 11 {
			t.Errorf("%d commits in 10 s", n)
		}
	})
}

// Messages that are not marked keep the position from passing what is behind them, in whatever order they are done.
func TestUnmarkedMessagesHoldThePosition(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		tr := openAt(t, cm, p, 0)
		tr.Delivered(nil, 5)
		time.Sleep(2 * time.Second)
		tr.Delivered(messages(5, 6, 7), 9)
		tr.Delivered(nil, 50)
		for _, step := range []struct{ done, want int64 }{{-1, 5}, {7, 5}, {5, 6}, {6, 50}} {
			if step.done >= 0 {
				tr.Done(step.done)
			}
			time.Sleep(2 * time.Second)
			assert.Equal(t, store.Get(p).Offset, step.want, "done %d: stored", step.done)
		}
	})
}

// A position that has passed offsets without messages is not committed once a message was delivered, because the program may
// commit that one in a transaction. A mark that follows is committed.
func TestOffsetsWithoutMessagesLowerNoTransaction(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p, q := tp("t", 0), tp("t", 1)
		released, marked := openAt(t, cm, p, 0), openAt(t, cm, q, 0)
		for _, tr := range []*Tracker{released, marked} {
			tr.Delivered(nil, 5)
			tr.Delivered(messages(5), 6)
			tr.Delivered(nil, 8)
		}
		store.Set(map[kiel.Partition]Stored{p: {Offset: 6}, q: {Offset: 6}}) // in a transaction
		time.Sleep(2 * time.Second)
		noerr.Want(t, cm.CommitLast(t.Context(), released))
		for _, of := range []kiel.Partition{p, q} {
			if got := store.Get(of); got.Offset != 6 || got.Ours {
				t.Errorf("%s: stored %+v, want what the transaction has", of, got)
			}
		}
		marked.Mark(6, "")
		time.Sleep(2 * time.Second)
		if got := store.Get(q); got.Offset != 8 || !got.Ours {
			t.Errorf("stored %+v after a mark", got)
		}
	})
}

// A position that is left alone, because the program or another one commits it, is not committed when it passes offsets without
// messages.
func TestOffsetsWithoutMessagesAreLeftAlone(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p, q := tp("t", 0), tp("t", 1)
		store.Set(map[kiel.Partition]Stored{p: {Offset: 3}})
		cm.OpenStored(p, newClaim(t), unknownID(""), 3, "").Delivered(nil, 9)
		tr := openAt(t, cm, q, 0)
		tr.Delivered(nil, 9)
		tr.LeaveAlone()
		time.Sleep(2 * time.Second)
		if store.Get(p).Offset != 3 || store.Get(q).Offset != 0 {
			t.Errorf("stored %d and %d", store.Get(p).Offset, store.Get(q).Offset)
		}
	})
}

// Without automatic commits nothing is committed but by Commit, which stores the position behind offsets without messages, too.
func TestOffsetsWithoutMessagesWaitForCommit(t *testing.T) {
	for name, all := range map[string]bool{"of all": true, "of the partition": false} {
		committerTest(t, name, false, func(t *testing.T, cm *Committer, store *MemoryStore) {
			p := tp("t", 0)
			tr := openAt(t, cm, p, 0)
			tr.Delivered(nil, 9)
			time.Sleep(time.Minute)
			assert.Equal(t, store.Get(p).Offset, 0, "stored before the commit")
			of := tr
			if all {
				of = nil
			}
			if err := cm.Commit(t.Context(), of); err != nil || store.Get(p).Offset != 9 {
				t.Errorf("stored %d, %v", store.Get(p).Offset, err)
			}
		})
	}
}

// A commit of a position that has passed no message is not sent any more once a message was delivered: not if it waits for its
// turn or its next attempt, either.
func TestPassedOffsetOnItsWayLowersNoTransaction(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		cm.options.Report = func(err error, _ kiel.Partition) { t.Errorf("reported %v", err) }
		p := tp("t", 0)
		tr := openAt(t, cm, p, 0)
		hold := make(chan struct{})
		store.Block = hold
		tr.Delivered(nil, 5)
		time.Sleep(1500 * time.Millisecond)
		tr.AwaitPassed(t.Context())
		tr.Delivered(messages(5), 6)
		store.Set(map[kiel.Partition]Stored{p: {Offset: 6}}) // in a transaction
		close(hold)
		time.Sleep(2 * time.Second)
		assert.Equal(t, store.Get(p).Offset, 6, "stored")
		if err := cm.Commit(t.Context(), nil); err != nil || store.Get(p).Offset != 6 {
			t.Errorf("all committed: stored %d, %v", store.Get(p).Offset, err)
		}
		tr.Mark(6, "")
		time.Sleep(2 * time.Second)
		if got := store.Get(p); got.Offset != 6 || !got.Ours {
			t.Errorf("marked: stored %+v", got)
		}
	})
}

// The first message waits for the answer to such a commit if it may be written. Without an answer the connections are aborted.
func TestFirstMessageWaitsForThePassedOffset(t *testing.T) {
	for name, c := range map[string]struct {
		answer, waits time.Duration
		aborts        int64
	}{
		"answered": {1200 * time.Millisecond, 700 * time.Millisecond, 0},
		"hung":     {time.Minute, passedWait, 1},
	} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			p := tp("t", 0)
			tr := openAt(t, cm, p, 0)
			time.Sleep(500 * time.Millisecond)
			store.Refuse = func(commit OffsetCommit) error {
				time.Sleep(c.answer)
				return commit.Authorize()
			}
			tr.Delivered(nil, 5)
			time.Sleep(time.Second)
			began := time.Now()
			tr.AwaitPassed(t.Context())
			if waited := time.Since(began); waited != c.waits || cm.aborts.Load() != c.aborts {
				t.Errorf("waited for %v, %d aborts", waited, cm.aborts.Load())
			}
			time.Sleep(2 * time.Minute)
			assert.Equal(t, store.Get(p).Offset, 5*(1-c.aborts), "stored")
		})
	}
}

// The first message waits no longer than its partition is open.
func TestFirstMessageOfARevokedPartitionWaitsForNothing(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		tr := openAt(t, cm, tp("t", 0), 0)
		store.Refuse = func(OffsetCommit) error {
			time.Sleep(time.Minute)
			return nil
		}
		tr.Delivered(nil, 5)
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		tr.AwaitPassed(ctx)
		if waited := time.Since(began); waited != 100*time.Millisecond || cm.aborts.Load() != 0 {
			t.Errorf("waited for %v, %d aborts", waited, cm.aborts.Load())
		}
	})
}
