package offsets

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

const sessionTimeout = 10 * time.Second

func unknownID(string) sarama.Uuid { return sarama.Uuid{} }

// committerOn returns a running Committer; stop ends it.
func committerOn(t *testing.T, store Store, auto bool) (*Committer, func()) {
	t.Helper()
	return running(t, optionsOn(store, auto))
}

func optionsOn(store Store, auto bool) Options {
	return Options{
		Store: store, Abort: func() {}, Auto: auto, Interval: time.Second, Timeout: sessionTimeout, CurrentID: unknownID,
		Notify: func(Committed, func()) bool { return false }, Report: func(error, kiel.Partition) {}, Count: func(kiel.Partition, error, time.Duration) {},
		Logger: slog.New(slog.DiscardHandler), Errors: errlog.New(slog.New(slog.DiscardHandler)),
	}
}

// running returns a running Committer; stop ends it.
func running(t *testing.T, opts Options) (*Committer, func()) {
	t.Helper()
	cm := NewCommitter(opts)
	ctx, cancel := context.WithCancel(t.Context())
	go cm.Run(ctx)
	return cm, func() {
		cancel()
		<-cm.done
	}
}

// logged returns what the Committer logs of its errors from now on.
func logged(cm *Committer) *bytes.Buffer {
	var log bytes.Buffer
	cm.options.Errors = errlog.New(slog.New(slog.NewTextHandler(&log, nil)))
	return &log
}

// withCommitter runs a test in a bubble, with a Committer that runs on a store.
func withCommitter(t *testing.T, auto bool, test func(t *testing.T, cm *Committer, store *MemoryStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := new(MemoryStore)
		cm, stop := committerOn(t, store, auto)
		defer stop()
		test(t, cm, store)
	})
}

// committerTest is withCommitter in a subtest.
func committerTest(t *testing.T, name string, auto bool, test func(t *testing.T, cm *Committer, store *MemoryStore)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { withCommitter(t, auto, test) })
}

func TestMarkRaisesAndResetLowers(t *testing.T) {
	b := &Tracker{next: 10}
	steps := []struct {
		do   func(int64, string) bool
		at   int64
		want int64
	}{
		{b.Mark, 9, 10},
		{b.Mark, 10, 10},
		{b.Mark, 12, 12},
		{b.Mark, 11, 12},
		{b.Reset, 13, 12},
		{b.Reset, 5, 5},
		{b.Mark, 6, 6},
	}
	for i, s := range steps {
		s.do(s.at, "")
		if b.next != s.want {
			t.Fatalf("step %d: position %d, want %d", i, b.next, s.want)
		}
	}
	b.close()
	b.Mark(100, "")
	b.Reset(0, "")
	assert.Equal(t, b.next, 6, "the position of a closed Tracker")
}

func TestOneRequestAnIntervalForAllMarks(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		var trackers []*Tracker
		for i := range int32(3) {
			b := cm.Open(tp("t", i), newClaim(t), sarama.Uuid{}, 0, "")
			noerr.Must(t, cm.Commit(t.Context(), b))
			trackers = append(trackers, b)
		}
		before := len(store.Commits())
		trackers[0].Mark(1, "")
		trackers[0].Mark(2, "")
		trackers[2].Mark(7, "")
		time.Sleep(1500 * time.Millisecond)
		time.Sleep(3 * time.Second) // nothing is marked, nothing is sent
		sent := store.Commits()[before:]
		want := map[kiel.Partition]int64{tp("t", 0): 2, tp("t", 2): 7}
		if len(sent) != 1 || !maps.Equal(sent[0], want) {
			t.Errorf("sent %v, want one request of %v", sent, want)
		}
	})
}

func TestCommitsThatWaitTravelTogether(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		store.Block = make(chan struct{})
		done := make(chan error, 50)
		for i := range int32(50) {
			b := cm.Open(tp("t", i), newClaim(t), sarama.Uuid{}, int64(i), "")
			go func() { done <- cm.CommitLast(t.Context(), b) }()
			if i == 0 {
				synctest.Wait() // the first is under way
			}
		}
		synctest.Wait()
		close(store.Block)
		for range 50 {
			noerr.Want(t, <-done)
		}
		assert.Equal(t, len(store.Commits()), 2, "requests for 50 commits")
	})
}

func TestOwnerLooksAtItsCommitAgain(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		openAt(t, cm, tp("t", 0), 42)
		start := time.Now()
		var at []time.Duration
		for n := 0; time.Since(start) < 13*time.Hour; time.Sleep(time.Second) {
			if m := len(store.Fetches()); m > n {
				n = m
				at = append(at, time.Since(start).Round(2*time.Second))
			}
		}
		want := []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, 6*time.Hour + 10*time.Minute, 12*time.Hour + 10*time.Minute}
		if len(at) != len(want) {
			t.Fatalf("looked after %v, want %v", at, want)
		}
		for i := range want {
			if d := at[i] - want[i]; d < 0 || d > 4*time.Second {
				t.Errorf("looked after %v, want %v", at, want)
			}
		}
	})
}

func TestCommitInTheMeantimeReplacesARepeat(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		b := cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 0, "")
		for i := range int64(700) {
			b.Mark(i+1, "")
			time.Sleep(time.Second)
		}
		if n := len(store.Commits()); n > 701 {
			t.Errorf("%d requests in 700 intervals", n)
		}
	})
}

func TestWithoutAutoCommitOnlyCommitCommits(t *testing.T) {
	withCommitter(t, false, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p := tp("t", 0)
		b := cm.Open(p, newClaim(t), sarama.Uuid{}, 5, "")
		noerr.Must(t, cm.Commit(t.Context(), b))
		b.Mark(9, "")
		time.Sleep(2 * time.Minute) // repeats of the position pass
		assert.Equal(t, store.Get(p).Offset, 5, "stored while nobody asks for a commit")
		noerr.Must(t, cm.Commit(t.Context(), nil))
		assert.Equal(t, store.Get(p).Offset, 9, "stored after Commit")
		b.Mark(11, "")
		noerr.Must(t, cm.CommitLast(t.Context(), b))
		assert.Equal(t, store.Get(p).Offset, 9, "stored at the end")
	})
}

func TestNothingIsCommittedForALostClaim(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		p, h := tp("t", 0), newClaim(t)
		b := cm.Open(p, h, sarama.Uuid{}, 5, "")
		noerr.Must(t, cm.Commit(t.Context(), b))
		b.Mark(9, "")
		h.distrust.Store(true)
		time.Sleep(3 * time.Second)
		assert.Error(t, cm.Commit(t.Context(), b), ErrLost, "commit")
		assert.Error(t, cm.CommitLast(t.Context(), b), ErrLost, "last commit")
		assert.Equal(t, store.Get(p).Offset, 5, "stored")
	})
}

// A process that was stopped past the end of its trust closes its partitions while the committer refuses their marks. Which of
// the two comes first must not decide what is counted.
func TestMarksOfALostClaimAreCounted(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		const partitions = 50
		var refused atomic.Int64
		cm.options.Count = func(_ kiel.Partition, err error, _ time.Duration) {
			if Fenced(err) {
				refused.Add(1)
			}
		}
		commitLast := func(id int32) {
			h := newClaim(t)
			b := cm.Open(tp("t", id), h, sarama.Uuid{}, 5, "")
			h.lose()
			assert.Error(t, cm.CommitLast(h.Context(), b), ErrLost, "last commit")
		}
		for id := range int32(partitions) {
			commitLast(id)
		}
		synctest.Wait()
		assert.Equal(t, refused.Load(), partitions, "counted")

		store.Block = make(chan struct{})
		go func() { _ = cm.Commit(t.Context(), cm.Open(tp("t", partitions), newClaim(t), sarama.Uuid{}, 5, "")) }()
		synctest.Wait() // the committer waits for the store
		commitLast(partitions + 1)
		assert.Equal(t, refused.Load(), partitions+1, "counted, the last of them while the committer was at work")
		close(store.Block)
	})
}

func TestNothingIsCommittedForARecreatedTopic(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		cm.options.CurrentID = func(string) sarama.Uuid { return sarama.Uuid{2} }
		p := tp("t", 0)
		b := cm.Open(p, newClaim(t), sarama.Uuid{1}, 5, "")
		assert.Error(t, cm.CommitLast(t.Context(), b), ErrRecreated, "last commit")
		assert.Equal(t, len(store.Commits()), 0, "requests: %v", store.Commits())
	})
}

// A tracker of before the brokers' names led to another cluster commits nothing there, in no way.
func TestNothingIsCommittedToAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, moved := new(MemoryStore), false
		opts := optionsOn(store, true)
		opts.Elsewhere = func() bool { return moved }
		cm, stop := running(t, opts)
		defer stop()
		a, b := cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 5, ""), cm.Open(tp("t", 1), newClaim(t), sarama.Uuid{}, 5, "")
		if err := cm.Commit(t.Context(), nil); err != nil || len(store.Commits()) != 1 {
			t.Fatalf("commits %v: %v", store.Commits(), err)
		}
		moved = true
		a.Mark(7, "")
		if err := cm.Commit(t.Context(), a); !errors.Is(err, ErrElsewhere) || !Fenced(err) {
			t.Errorf("commit: %v, want ErrElsewhere", err)
		}
		time.Sleep(20 * time.Minute) // ticks and repeats
		assert.Error(t, cm.CommitLast(t.Context(), a), ErrElsewhere, "last commit")
		assert.Error(t, cm.CommitLast(t.Context(), b), nil, "last commit without a mark")
		if n := len(store.Commits()); n != 1 {
			t.Errorf("%d requests were sent", n-1)
		}
	})
}

func TestLastCommitRetriesAndGivesUp(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		fails := 3
		refuse := func(OffsetCommit) error {
			if fails--; fails >= 0 {
				return errors.New("not now")
			}
			return nil
		}
		store.Refuse = func(c OffsetCommit) error { return refuse(c) }
		p := tp("t", 0)
		assert.Error(t, cm.CommitLast(t.Context(), cm.Open(p, newClaim(t), sarama.Uuid{}, 5, "")), nil, "last commit")
		assert.Equal(t, store.Get(p).Offset, 5, "stored")

		refuse = func(OffsetCommit) error { return errors.New("never") }
		start := time.Now()
		if err := cm.CommitLast(t.Context(), cm.Open(p, newClaim(t), sarama.Uuid{}, 6, "")); err == nil {
			t.Error("committed without the store")
		}
		assert.Equal(t, time.Since(start), LastCommitTimeout, "gave up after")
	})
}

func TestEndAnswersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{Block: make(chan struct{})}
		cm, stop := committerOn(t, store, true)
		p := tp("t", 0)
		b := cm.Open(p, newClaim(t), sarama.Uuid{}, 5, "")
		done := make(chan error)
		go func() { done <- cm.Commit(t.Context(), b) }()
		synctest.Wait()
		stop()
		if err := <-done; err == nil {
			t.Error("commit succeeded without an answer")
		}
		assert.Error(t, cm.Commit(t.Context(), b), ErrEnded, "commit after the end")
	})
}

// A Committer is alive while it answers, while it waits for the store, and when it has ended; not while somebody stops it.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{}
		cm, stop := committerOn(t, store, true)
		alive := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			err := cm.Alive(ctx)
			return time.Since(began), err
		}
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("at work: %v after %v", err, took)
		}
		tr := openAt(t, cm, tp("t", 0), 0)
		store.Slow = make(chan struct{})
		tr.Mark(1, "")
		time.Sleep(2 * time.Second) // its commit is under way
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("waiting for the store: %v after %v", err, took)
		}
		stuck := make(chan struct{})
		cm.options.Count = func(kiel.Partition, error, time.Duration) { <-stuck }
		close(store.Slow)
		synctest.Wait()
		if took, err := alive(); err == nil || took != 5*time.Second {
			t.Errorf("stuck: %v after %v", err, took)
		}
		close(stuck)
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("at work again: %v after %v", err, took)
		}
		stop()
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("ended: %v after %v", err, took)
		}
	})
}

// Kafka takes commits as far as is known if it has taken the newest one, within the last minute.
func TestAccepts(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		var refuses atomic.Bool
		store.Refuse = func(OffsetCommit) error {
			if refuses.Load() {
				return ErrGroupInUse
			}
			return nil
		}
		if cm.Accepts() {
			t.Error("nothing was committed")
		}
		tr := openAt(t, cm, tp("t", 0), 42)
		if !cm.Accepts() {
			t.Error("an offset was stored")
		}
		refuses.Store(true)
		tr.Mark(43, "")
		time.Sleep(2 * time.Second)
		if cm.Accepts() {
			t.Error("the newest commit was refused")
		}
		refuses.Store(false)
		time.Sleep(2 * time.Second)
		if !cm.Accepts() {
			t.Error("an offset was stored again")
		}
		time.Sleep(acceptedFor)
		if cm.Accepts() {
			t.Error("that was long ago")
		}
	})
}
