package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
)

// When a commit was sent says whether it was still allowed: it may have waited for long before, and its answer may come after
// the end of trust.
func TestCommittedTellsWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{hold: make(chan struct{}), slow: make(chan struct{})}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		var got []Event
		l.observe = func(e Event, _ func()) *callback { got = append(got, e); return nil }
		h := newHolder(t, tp("t", 0))
		b := l.open(tp("t", 0), h, sarama.Uuid{}, 0, "")
		sent := time.Now().Add(3 * time.Second)
		time.AfterFunc(3*time.Second, func() { close(store.hold) })
		time.AfterFunc(5*time.Second, func() {
			h.distrust.Store(true)
			close(store.slow)
		})
		if err := l.commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].Kind != Committed || !got[0].Since.Equal(sent) {
			t.Errorf("got %+v, want it sent at %v", got, sent)
		}
	})
}

// What is on the wire when a partition is given up is waited for, be it the start position or a repetition: it must not
// arrive after the next owner's commits.
func TestCommitUnderWayIsWaitedFor(t *testing.T) {
	const answer = 3 * time.Second
	for name, giveUp := range map[string]func(*ledger, context.Context, *book){
		"opening was interrupted": func(l *ledger, claim context.Context, b *book) { l.close(claim, b) },
		"nothing was marked": func(l *ledger, claim context.Context, b *book) {
			b.mu.Lock()
			b.dirty = false // so that what is under way is a repetition
			b.mu.Unlock()
			_ = l.settle(claim, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{hold: make(chan struct{})}
				l, stop := ledgerOn(t, store, true)
				defer stop()
				h := newHolder(t, tp("t", 0))
				b := l.open(tp("t", 0), h, sarama.Uuid{}, 0, "")
				go func() { _ = l.commit(t.Context(), b) }()
				synctest.Wait() // it is under way
				time.AfterFunc(answer, func() { close(store.hold) })
				start := time.Now()
				giveUp(l, h.Context(), b)
				if d := time.Since(start); d != answer {
					t.Errorf("given up after %v, the answer came after %v", d, answer)
				}
			})
		})
	}
}

// What is still on the wire when the time to give a partition up is over, or its claim is lost, is thrown away with its
// connection, once for all that is in it; and there is one limit to all of it.
func TestCommitOnTheWireIsThrownAway(t *testing.T) {
	const n = 3
	for name, lost := range map[string]bool{"too late": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{slow: make(chan struct{})}
				l, stop := ledgerOn(t, store, true)
				defer stop()
				aborted := 0
				l.abort = func() {
					aborted++
					time.AfterFunc(time.Millisecond, func() { close(store.slow) }) // when nobody waits for it any more
				}
				var holders []*fakeHolder
				var books []*book
				for i := range int32(n) {
					holders = append(holders, newHolder(t, tp("t", i)))
					books = append(books, l.open(tp("t", i), holders[i], sarama.Uuid{}, 0, ""))
				}
				time.Sleep(1500 * time.Millisecond) // all are sent, and no answer comes
				start, done := time.Now(), make(chan error)
				for i, b := range books {
					go func() { done <- l.settle(holders[i].Context(), b) }()
				}
				want := settleTimeout
				if lost {
					want = 4 * time.Second
					time.Sleep(want)
					for _, h := range holders {
						h.lose()
					}
				}
				for range n {
					if err := <-done; err == nil {
						t.Error("settled without an answer")
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

// silentStore never answers: it sends again, without what is not allowed any more, when its connection is thrown away.
type silentStore struct {
	fakeStore
	aborts chan struct{}
	wire   atomic.Pointer[map[allocfn.Partition]bool] // what was sent and not thrown away
}

func (s *silentStore) commit(ctx context.Context, es []entry) map[allocfn.Partition]error {
	out := map[allocfn.Partition]error{}
	for ctx.Err() == nil {
		wire := map[allocfn.Partition]bool{}
		for _, e := range es {
			if out[e.partition] = e.allowed(); out[e.partition] == nil {
				wire[e.partition] = true
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

// A commit that was sent again with the next connection is thrown away too when its own time is over.
func TestCommitSentAgainIsThrownAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentStore{aborts: make(chan struct{})}
		l, stop := ledgerOn(t, store, true)
		defer stop()
		l.abort = func() { store.aborts <- struct{}{} }
		first, second := tp("t", 0), tp("t", 1)
		one := l.open(first, newHolder(t, first), sarama.Uuid{}, 0, "")
		two := l.open(second, newHolder(t, second), sarama.Uuid{}, 0, "")
		time.Sleep(1500 * time.Millisecond) // both are sent
		giveUp := func(b *book, after time.Duration) <-chan struct{} {
			done := make(chan struct{})
			time.AfterFunc(after, func() {
				defer close(done)
				_ = l.settle(t.Context(), b)
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

// A partition is given up after its last commit was told, also when that commit was under way already.
func TestCommittedIsToldBeforeTheLastCommitIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := ledgerOn(t, &fakeStore{}, true)
		defer stop()
		var told atomic.Int32
		l.observe = func(_ Event, then func()) *callback {
			time.AfterFunc(time.Second, func() {
				told.Add(1)
				then()
			})
			return &callback{}
		}
		b := l.open(tp("t", 0), newHolder(t, tp("t", 0)), sarama.Uuid{}, 0, "")
		b.mark(5, "")
		time.Sleep(1500 * time.Millisecond) // the ledger has stored it by itself, and is telling
		if err := l.settle(t.Context(), b); err != nil || told.Load() == 0 {
			t.Errorf("settled with %v before the commit was told", err)
		}
	})
}
