package offsets

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// The tests in this file are of rules that hold only between two requests, deliveries or claims.

// The ring of a window grows before it is too short by one: else the bit of the newest message is that of the oldest one, which
// then counts as done, and is lost.
func TestRingGrowsInTime(t *testing.T) {
	for _, n := range []int64{64, 128, 256} {
		tr := NewCommitter(Options{}).Open(tp("t", 0), &fakeClaim{}, sarama.Uuid{}, 0, "")
		tr.Delivered(manyMessages(0, int(n), 1), n)
		tr.Done(n - 1) // makes a ring that is full
		for next := n; next < n+3; next++ {
			tr.Delivered(manyMessages(next, 1, 1), next+1)
			tr.Done(next)
			wantPosition(t, "the oldest message is not done", tr, 0)
		}
		for offset := range n - 1 {
			tr.Done(offset)
		}
		wantPosition(t, "all are done", tr, n+3)
	}
}

// When a fetch is repeated, messages come twice. They are counted once.
func TestRedeliveredMessagesCountOnce(t *testing.T) {
	tr := NewCommitter(Options{}).Open(tp("t", 0), &fakeClaim{}, sarama.Uuid{}, 0, "")
	tr.Done(0) // not delivered, but from now on the window is in use
	tr.Delivered(manyMessages(0, 10, 1), 10)
	tr.Delivered(manyMessages(5, 10, 1), 15)
	for offset := int64(5); offset < 15; offset++ {
		tr.Done(offset)
	}
	wantPosition(t, "the first five are not done", tr, 0)
	for offset := range int64(5) {
		tr.Done(offset)
	}
	wantPosition(t, "all are done", tr, 15)
}

// A late Close of an earlier claim's Tracker leaves the Tracker of the new claim where Run finds it.
func TestLateCloseLeavesTheNewTracker(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		old := openAt(t, cm, p, 42)
		anew := openAt(t, cm, p, 42)
		cm.Close(t.Context(), old)
		if cm.Find(p.Topic, p.ID) != anew {
			t.Error("the Tracker of the new claim is gone")
		}
		anew.Mark(50, "")
		time.Sleep(3 * time.Second)
		assert.Equal(t, store.Get(p).Offset, 50, "stored")
	})
}

// The observer is notified of a Tracker's commits in their order, one after the other, however long it takes.
func TestObserverIsNotifiedInOrder(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		var offsets []int64
		var observed []func()
		b := openAt(t, cm, tp("t", 0), 42)
		cm.options.Notify = func(c Committed, done func()) bool {
			offsets, observed = append(offsets, c.Offset), append(observed, done)
			return true
		}
		for offset := int64(43); offset < 46; offset++ {
			b.Mark(offset, "")
			go func() { _ = cm.Commit(t.Context(), b) }()
			synctest.Wait()
		}
		for i := range 3 {
			if want := []int64{43, 44, 45}[:i+1]; !slices.Equal(offsets, want) {
				t.Fatalf("notified of %v, want %v", offsets, want)
			}
			observed[i]()
			synctest.Wait()
		}
	})
}

// A mark that changes the user's metadata alone, while a commit of the same offset is in flight, is committed, too.
func TestTextThatChangesMeanwhileIsCommitted(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		b := openAt(t, cm, p, 42)
		store.Block = make(chan struct{})
		b.Mark(50, "first")
		go func() { _ = cm.Commit(t.Context(), b) }()
		synctest.Wait() // it is in flight
		b.Reset(50, "second")
		close(store.Block)
		time.Sleep(3 * time.Second)
		if got := store.Get(p); got.Offset != 50 || got.Text != "second" {
			t.Errorf("stored %d with %q, want the last metadata", got.Offset, got.Text)
		}
	})
}

// lateStore answers each Fetch some time after it has read the offsets.
type lateStore struct {
	*MemoryStore
	late time.Duration
	read sync.Once // of the first Fetch
	then func()    // called when the first Fetch has read the offsets
}

func (s *lateStore) Fetch(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	found, err := s.MemoryStore.Fetch(ctx, ps)
	s.read.Do(s.then)
	time.Sleep(s.late)
	return found, err
}

// A repeat does not act on what was stored before a commit that came meanwhile. Else it takes the offset from before a Reset for
// one that a former owner has stored, and raises the position again: the messages for which the user has reset it are lost.
func TestRepeatActsOnNothingOlderThanACommit(t *testing.T) {
	for name, timeout := range map[string]time.Duration{
		"no other repeat is due soon":  sessionTimeout,
		"another is due at the answer": time.Minute - time.Second,
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p := tp("t", 0)
			store := &lateStore{MemoryStore: &MemoryStore{}, late: 900 * time.Millisecond}
			opts := optionsOn(store, true)
			opts.Timeout, opts.Interval = timeout, 300*time.Millisecond
			cm, stop := running(t, opts)
			defer stop()
			store.then = func() { cm.Find(p.Topic, p.ID).Reset(20, "") }
			openAt(t, cm, p, 50)
			time.Sleep(time.Hour)
			assert.Equal(t, store.Get(p).Offset, 20, "stored after a Reset to 20")
		})
	}
}

// A release that has given up waiting is over: an answer to its question that comes then makes no commit.
func TestAnswerAfterTheReleaseMakesNoCommit(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		commits := map[kiel.Partition]int{}
		cm.options.Count = func(p kiel.Partition, _ error, _ time.Duration) { commits[p]++ }
		released, busy := openAt(t, cm, p, 42), openAt(t, cm, tp("t", 1), 0)
		store.Clear()
		store.Delay = 500 * time.Millisecond
		committed := make(chan error)
		go func() { committed <- cm.CommitLast(t.Context(), released) }()
		synctest.Wait() // what is stored is being read
		store.Block = make(chan struct{})
		busy.Mark(1, "")
		go func() { _ = cm.Commit(t.Context(), busy) }()
		noerr.Want(t, <-committed)
		close(store.Block)
		time.Sleep(time.Second)
		synctest.Wait()
		if commits[p] != 1 || commits[tp("t", 1)] != 2 {
			t.Errorf("%v commits, want one before the release", commits)
		}
	})
}

// While the observer is not notified of a commit, no timer makes another one of that partition, so that notifications do not pile
// up; it makes those of other partitions. Afterwards the newest mark is committed.
func TestHangingObserverPilesNothingUp(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p, q := tp("t", 0), tp("t", 1)
		slow, other := openAt(t, cm, p, 0), openAt(t, cm, q, 0)
		returns := make(chan struct{})
		cm.options.Notify = func(c Committed, observed func()) bool {
			if c.Partition == q {
				return false
			}
			go func() {
				<-returns
				observed()
			}()
			return true
		}
		for i := range int64(60) {
			slow.Mark(i+1, "")
			other.Mark(i+1, "")
			time.Sleep(time.Second)
		}
		commits := map[kiel.Partition]int{}
		for _, sent := range store.Commits() {
			for p := range sent {
				commits[p]++
			}
		}
		if commits[p] != 2 || commits[q] < 30 {
			t.Errorf("%v commits in a minute, want the start and one whose notification hangs, and many of the other", commits)
		}
		close(returns)
		time.Sleep(2 * time.Second)
		assert.Equal(t, store.Get(p).Offset, 60, "stored when the observer has returned")
	})
}

// A repeat waits, too, until the observer was notified of the commit before, and is made then.
func TestRepeatWaitsForTheObserver(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		b := openAt(t, cm, p, 0)
		var returns []func()
		cm.options.Notify = func(_ Committed, observed func()) bool {
			returns = append(returns, observed)
			return true
		}
		b.Mark(42, "")
		time.Sleep(2 * time.Second)
		store.Clear()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := len(store.Commits()); n != 2 || len(returns) != 1 {
			t.Fatalf("%d commits and %d notifications, want the start, and the mark whose notification hangs", n, len(returns))
		}
		returns[0]()
		time.Sleep(2 * time.Second)
		assert.Equal(t, store.Get(p).Offset, 42, "stored when the observer has returned")
	})
}

// A position that is left alone stays so when the answer to a repeat comes that was sent before. Else the position, which the
// user goes on to commit in transactions, is stored again later, below theirs.
func TestRepeatInFlightDoesNotEndLeaveAlone(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		hold, commits := make(chan struct{}), 0
		cm.options.Count = func(kiel.Partition, error, time.Duration) {
			if commits++; commits == 2 {
				<-hold
			}
		}
		b := openAt(t, cm, p, 42)
		store.Clear()
		time.Sleep(sessionTimeout + 2*time.Second) // the answer to a repeat is on its way
		if n := len(store.Commits()); n != 2 {
			t.Fatalf("%d commits, want the start and a repeat", n)
		}
		b.LeaveAlone()
		close(hold)
		store.Clear()
		time.Sleep(24 * time.Hour)
		assert.Equal(t, store.Get(p).Offset, -1, "stored while the position is left alone")
	})
}

// Messages that were taken back are read again, even if one behind them was received meanwhile and is marked.
func TestMarksBehindWhatWasTakenBack(t *testing.T) {
	tr := NewCommitter(Options{}).Open(tp("t", 0), &fakeClaim{}, sarama.Uuid{}, 0, "")
	tr.Delivered(manyMessages(0, 10, 1), 10)
	tr.Mark(3, "")
	tr.Withhold(func() (int64, bool) { return 0, false })
	tr.Mark(4, "")
	tr.Withhold(func() (int64, bool) { return 6, true })
	tr.Withhold(func() (int64, bool) { return 9, true }) // later, and another one
	if tr.Mark(9, "") || tr.Mark(10, "") {
		t.Error("a mark counts behind what was taken back")
	}
	wantPosition(t, "what was taken back is not done", tr, 4)
	if !tr.Mark(6, "") {
		t.Error("a mark before that does not count")
	}
	wantPosition(t, "the others are done", tr, 6)
}
