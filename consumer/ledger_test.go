package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
)

const sessionTimeout = 10 * time.Second

var errRevokedInTest = errors.New("revoked")

func line(what string, p allocfn.Partition, n int64) string {
	return fmt.Sprintf("%s %s@%d", what, p, n)
}

func unknownID(string) sarama.Uuid { return sarama.Uuid{} }

// ledgerOn returns a running ledger; stop ends it.
func ledgerOn(t *testing.T, store offsetStore, auto bool) (*ledger, func()) {
	t.Helper()
	m, err := newMetrics(nil, "g")
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(ledgerOptions{
		store: store, abort: func() {}, auto: auto, interval: time.Second, timeout: sessionTimeout, current: unknownID,
		observe: func(Event, func()) *callback { return nil }, report: func(error, allocfn.Partition) {}, metrics: m,
	})
	ctx, cancel := context.WithCancel(t.Context())
	go l.run(ctx)
	return l, func() {
		cancel()
		<-l.done
	}
}

func TestMarkRaisesAndResetLowers(t *testing.T) {
	b := &book{next: 10}
	steps := []struct {
		do   func(int64, string)
		at   int64
		want int64
	}{
		{b.mark, 9, 10},
		{b.mark, 10, 10},
		{b.mark, 12, 12},
		{b.mark, 11, 12},
		{b.reset, 13, 12},
		{b.reset, 5, 5},
		{b.mark, 6, 6},
	}
	for i, s := range steps {
		s.do(s.at, "")
		if b.next != s.want {
			t.Fatalf("step %d: position %d, want %d", i, b.next, s.want)
		}
	}
	b.close()
	b.mark(100, "")
	b.reset(0, "")
	if b.next != 6 {
		t.Errorf("a closed book took a mark: %d", b.next)
	}
}

func TestOneRequestAnIntervalForAllMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		var books []*book
		for i := range int32(3) {
			b := l.open(tp("t", i), newHolder(t, tp("t", i)), sarama.Uuid{}, 0, "")
			if err := l.commit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			books = append(books, b)
		}
		before := len(store.sent())
		books[0].mark(1, "")
		books[0].mark(2, "")
		books[2].mark(7, "")
		time.Sleep(1500 * time.Millisecond)
		time.Sleep(3 * time.Second) // nothing is marked, nothing is sent
		sent := store.sent()[before:]
		want := map[allocfn.Partition]int64{tp("t", 0): 2, tp("t", 2): 7}
		if len(sent) != 1 || !maps.Equal(sent[0], want) {
			t.Errorf("sent %v, want one request of %v", sent, want)
		}
	})
}

func TestCommitsThatWaitTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{hold: make(chan struct{})}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		done := make(chan error, 50)
		for i := range int32(50) {
			b := l.open(tp("t", i), newHolder(t, tp("t", i)), sarama.Uuid{}, int64(i), "")
			go func() { done <- l.settle(t.Context(), b) }()
			if i == 0 {
				synctest.Wait() // the first is under way
			}
		}
		synctest.Wait()
		close(store.hold)
		for range 50 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(store.sent()); n != 2 {
			t.Errorf("50 commits took %d requests, want 2", n)
		}
	})
}

func TestOwnerRepeatsItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		b := l.open(tp("t", 0), newHolder(t, tp("t", 0)), sarama.Uuid{}, 42, "")
		if err := l.commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var at []time.Duration
		for n := len(store.sent()); time.Since(start) < 13*time.Hour; time.Sleep(time.Second) {
			if m := len(store.sent()); m > n {
				n = m
				at = append(at, time.Since(start).Round(2*time.Second))
			}
		}
		want := []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, 6*time.Hour + 10*time.Minute, 12*time.Hour + 10*time.Minute}
		if len(at) != len(want) {
			t.Fatalf("repeated after %v, want %v", at, want)
		}
		for i := range want {
			if d := at[i] - want[i]; d < 0 || d > 4*time.Second {
				t.Errorf("repeated after %v, want %v", at, want)
			}
		}
		if got := store.at(tp("t", 0)); got != 42 {
			t.Errorf("stored %d", got)
		}
	})
}

func TestCommitInTheMeantimeReplacesARepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		b := l.open(tp("t", 0), newHolder(t, tp("t", 0)), sarama.Uuid{}, 0, "")
		for i := range int64(700) {
			b.mark(i+1, "")
			time.Sleep(time.Second)
		}
		if n := len(store.sent()); n > 701 {
			t.Errorf("%d requests in 700 intervals", n)
		}
	})
}

func TestWithoutAutoCommitOnlyCommitCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		l, stop := ledgerOn(t, store, false)
		defer stop()
		p := tp("t", 0)
		b := l.open(p, newHolder(t, p), sarama.Uuid{}, 5, "")
		if err := l.commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		b.mark(9, "")
		time.Sleep(2 * time.Minute) // repeats of the position pass
		if got := store.at(p); got != 5 {
			t.Errorf("stored %d without being asked", got)
		}
		if err := l.commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := store.at(p); got != 9 {
			t.Errorf("stored %d after Commit, want 9", got)
		}
		b.mark(11, "")
		if err := l.settle(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := store.at(p); got != 9 {
			t.Errorf("stored %d at the end, want 9: the mark was not committed", got)
		}
	})
}

func TestNothingIsCommittedForALostClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		b := l.open(p, h, sarama.Uuid{}, 5, "")
		if err := l.commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		b.mark(9, "")
		h.distrust.Store(true)
		time.Sleep(3 * time.Second)
		if err := l.commit(t.Context(), b); !errors.Is(err, errLost) {
			t.Errorf("commit: %v, want errLost", err)
		}
		if err := l.settle(t.Context(), b); !errors.Is(err, errLost) {
			t.Errorf("settle: %v, want errLost", err)
		}
		if got := store.at(p); got != 5 {
			t.Errorf("stored %d", got)
		}
	})
}

func TestNothingIsCommittedForARecreatedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		l.current = func(string) sarama.Uuid { return sarama.Uuid{2} }
		p := tp("t", 0)
		b := l.open(p, newHolder(t, p), sarama.Uuid{1}, 5, "")
		if err := l.settle(t.Context(), b); !errors.Is(err, ErrRecreated) {
			t.Errorf("settle: %v, want ErrRecreated", err)
		}
		if len(store.sent()) != 0 {
			t.Errorf("sent %v", store.sent())
		}
	})
}

func TestSettleRetriesAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := 3
		store := &fakeStore{fail: func(entry) error {
			if fails--; fails >= 0 {
				return errors.New("not now")
			}
			return nil
		}}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		p := tp("t", 0)
		if err := l.settle(t.Context(), l.open(p, newHolder(t, p), sarama.Uuid{}, 5, "")); err != nil {
			t.Errorf("settle: %v", err)
		}
		if store.at(p) != 5 {
			t.Errorf("stored %d", store.at(p))
		}

		store.fail = func(entry) error { return errors.New("never") }
		start := time.Now()
		if err := l.settle(t.Context(), l.open(p, newHolder(t, p), sarama.Uuid{}, 6, "")); err == nil {
			t.Error("settled without the store")
		}
		if d := time.Since(start); d != settleTimeout {
			t.Errorf("gave up after %v, want %v", d, settleTimeout)
		}
	})
}

func TestLedgerEndsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{hold: make(chan struct{})}
		l, stop := ledgerOn(t, store, true)
		p := tp("t", 0)
		b := l.open(p, newHolder(t, p), sarama.Uuid{}, 5, "")
		done := make(chan error)
		go func() { done <- l.commit(t.Context(), b) }()
		synctest.Wait()
		stop()
		if err := <-done; err == nil {
			t.Error("commit succeeded without an answer")
		}
		if err := l.commit(t.Context(), b); !errors.Is(err, errEnded) {
			t.Errorf("commit after the end: %v", err)
		}
	})
}
