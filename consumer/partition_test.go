package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/ownership"
)

// newRunRig is newRig for a function as Run takes it.
func newRunRig(t *testing.T, handle func(context.Context, *Partition) error, change func(*Options)) *rig {
	t.Helper()
	r := newRig(t, nil, change)
	r.session.session.user = runUser{handle}
	return r
}

func TestRunKeepsTheOrderOfOpeningAndClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		var r *rig
		r = newRunRig(t, func(ctx context.Context, part *Partition) error {
			for m := range part.Messages() {
				part.Mark(m)
			}
			assert.Error(t, context.Cause(ctx), errRevokedInTest, "the handler's context ended with")
			if !part.Trusted() || part.Context().Err() != nil {
				t.Error("the claim ended with the revocation")
			}
			r.log.add("return", p, 0)
			return ctx.Err()
		}, nil)
		r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: 40}})
		_, done := r.opened(h, 40, 41, 42)
		synctest.Wait()
		h.release(t, done)
		want := []string{line("commit", p, 40), line("open", p, 40), line("return", p, 0), line("commit", p, 43)}
		assert.Slices(t, r.log.all(), want, "log")
		events := []string{
			line("committed", p, 40), line("opened", p, 40), line("message", p, 40), line("message", p, 41), line("message", p, 42),
			line("committed", p, 43),
		}
		assert.Slices(t, r.kinds(p), events, "events")
		r.reportsNothing(t)
	})
}

// A handler that works on a message when the partition is lost finds that out, and commits nothing.
func TestRunCommitsNothingOfALostPartition(t *testing.T) {
	for name, lose := range map[string]func(*fakeHolder){
		"and is told":             func(h *fakeHolder) { h.end(fmt.Errorf("gone: %w", ownership.ErrLost)) },
		"and is not told for now": func(*fakeHolder) {},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p, h := tp("t", 0), newHolder(t, tp("t", 0))
			var got []int64
			r := newRunRig(t, func(ctx context.Context, part *Partition) error {
				for m := range part.Messages() {
					got = append(got, m.Offset)
					if m.Offset == 1 {
						h.distrust.Store(true)
						lose(h)
					}
					part.Mark(m)
				}
				assert.Error(t, context.Cause(ctx), ownership.ErrLost, "the handler's context ended with")
				assert.Error(t, part.Commit(t.Context()), ownership.ErrLost, "Commit")
				return context.Cause(ctx)
			}, func(o *Options) { o.CommitInterval = time.Hour })
			_, done := r.opened(h, 0, 1, 2, 3)
			time.Sleep(time.Second)
			h.end(offsets.ErrLost)
			<-done
			assert.Slices(t, got, []int64{0, 1}, "handed out")
			assert.Equal(t, r.store.Get(p).Offset, 0, "stored")
			r.reportsNothing(t)
		})
	}
}

// The claim is asked anew for each message, and once for each batch.
func TestTrustIsAskedAtEachHandOut(t *testing.T) {
	for name, c := range map[string]struct {
		read  func(p *Partition)
		asked int64
	}{
		"messages": {func(p *Partition) {
			for range p.Messages() {
			}
		}, 5},
		"batches": {func(p *Partition) {
			for range p.Batches() {
			}
		}, 1},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p, s, h := newPartition(t)
			s.send(0, 1, 2, 3, 4)
			s.ended <- errEndedInTest
			c.read(p)
			assert.Equal(t, h.asked.Load(), c.asked, "questions")
			assert.Error(t, context.Cause(p.ctx), errEndedInTest, "ended with")
		})
	}
}

// A process may be stopped at any moment. Afterwards it is handed at most the one message for which trust was checked before the
// stop, and no later mark is committed.
func TestStoppedAtAnyMoment(t *testing.T) {
	first := rand.Uint64()
	t.Logf("seeds from %d", first)
	for i := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(first+i, 0))
			tp, h := tp("t", 0), newHolder(t, tp("t", 0))
			moment := rnd.Int64N(40) // in questions for trust
			before := rnd.IntN(2) == 0
			news := time.Duration(rnd.Int64N(int64(20 * time.Millisecond)))
			stopped, late, marked := false, 0, int64(0)
			stop := func() {
				stopped = true
				h.distrust.Store(true)
				time.AfterFunc(news, h.lose) // until the process knows
			}
			h.onTrust = func(n int64) (after func()) {
				if n != moment || stopped {
					return nil
				}
				if before {
					stop()
					return nil
				}
				return stop
			}
			r := newRunRig(t, func(_ context.Context, p *Partition) error {
				for m := range p.Messages() {
					if stopped {
						late++
					} else {
						marked = m.Offset + 1
					}
					p.Mark(m)
					if rnd.IntN(3) == 0 {
						time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Millisecond))))
					}
				}
				return nil
			}, func(o *Options) { o.CommitInterval = 3 * time.Millisecond })
			r.observer, r.fetch.ready = nil, 50
			done := r.owned(h)
			time.Sleep(time.Second)
			h.lose()
			<-done
			most := 1
			if before {
				most = 0
			}
			if late > most {
				t.Errorf("seed %d: %d messages after waking", first+i, late)
			}
			if at := r.store.Get(tp).Offset; at > marked {
				t.Errorf("seed %d: stored %d, but %d was marked before the stop", first+i, at, marked)
			}
		})
	}
}

// A handler may leave a loop and begin another, of either kind: it goes on where it was.
func TestLoopsGoOnWhereTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		s.send(0, 1, 2, 3)
		s.send()
		s.send(4, 5)
		s.send(9)
		s.ended <- errEndedInTest
		var got []int64
		for m := range p.Messages() {
			if got = append(got, m.Offset); len(got) == 2 {
				break
			}
		}
		for b := range p.Batches() {
			got = append(got, -int64(len(b)), b[0].Offset)
			break
		}
		for m := range p.Messages() {
			got = append(got, m.Offset)
			break
		}
		for b := range p.Batches() {
			got = append(got, -int64(len(b)), b[0].Offset)
		}
		for m := range p.Messages() {
			t.Errorf("got %d after the end", m.Offset)
		}
		assert.Slices(t, got, []int64{0, 1, -2, 2, 4, -1, 5, -1, 9}, "got")
	})
}

func TestHandOutAllocatesNothing(t *testing.T) {
	p, s, _ := newPartition(t)
	s.send(make([]int64, 3000)...)
	p.next() // the batch
	if n := testing.AllocsPerRun(1000, func() {
		if p.next() == nil {
			t.Fatal("no message")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a message", n)
	}
	var n float64
	for m := range p.Messages() {
		n = testing.AllocsPerRun(1000, func() { p.Mark(m) })
		break
	}
	assert.Equal(t, n, 0, "allocations for a mark")
}

func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		s.lag, s.behind, s.hwm = 7, time.Hour, 10
		check := func(messages int64, behind time.Duration) {
			t.Helper()
			if n, d := p.Lag(); n != messages || d != behind {
				t.Errorf("lag %d, %v, want %d, %v", n, d, messages, behind)
			}
		}
		check(7, time.Hour)
		s.send(3, 4)
		p.next()
		time.Sleep(time.Minute)
		s.lag = 2 // what may be read ends at 7, before a transaction that is open
		check(3, time.Minute)
		s.lag = 7
		p.next()
		check(7, time.Hour) // as the stream says of what comes next
		s.send(5, 6)
		p.next()
		p.cursor.Load().messages[1].Timestamp = time.Time{} // of a producer without timestamps
		check(8, 0)
	})
}

func TestMarkOfAnotherPartitionPanics(t *testing.T) {
	p, _, _ := newPartition(t)
	for _, m := range []*sarama.ConsumerMessage{{Topic: "t", Partition: 1}, {Topic: "u"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s:%d was marked", m.Topic, m.Partition)
				}
			}()
			p.Mark(m)
		}()
	}
}

// The metrics count all messages handed out whenever the handler waits for more or has left its loop.
func TestHandedOutIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunRig(t, func(_ context.Context, p *Partition) error {
			for range p.Messages() {
			}
			return nil
		}, nil)
		h := newHolder(t, tp("t", 0))
		_, done := r.opened(h, 0, 1, 2)
		synctest.Wait()
		if n, b := testutil.ToFloat64(r.metrics.messages.WithLabelValues("t")), testutil.ToFloat64(r.metrics.bytes.WithLabelValues("t")); n != 3 || b != 3 {
			t.Errorf("%v messages, %v bytes", n, b)
		}
		h.release(t, done)
	})
}

func TestHandlerOfRunThatReturns(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		result func() error
		reopen bool
		want   error
	}{
		"nil":           {func() error { return nil }, false, ErrHandler},
		"error":         {func() error { return boom }, false, boom},
		"panic":         {func() error { panic("boom") }, false, ownership.ErrCallback},
		"nil, reopen":   {func() error { return nil }, true, ErrHandler},
		"error, reopen": {func() error { return boom }, true, boom},
		"panic, reopen": {func() error { panic("boom") }, true, ownership.ErrCallback},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newRunRig(t, func(_ context.Context, p *Partition) error {
				for m := range p.Messages() {
					p.Mark(m)
					break
				}
				return c.result()
			}, func(o *Options) { o.ReopenPartition = c.reopen })
			h := newHolder(t, tp("t", 0))
			_, done := r.opened(h, 0, 1)
			synctest.Wait()
			assert.Equal(t, r.store.Get(tp("t", 0)).Offset, 1, "stored")
			got := r.session.session.failure
			if ended := r.session.session.closing.Err() != nil; ended == c.reopen {
				t.Errorf("the session has ended: %v", ended)
			}
			errs := r.errors()
			if !c.reopen {
				h.revoke()
				if err := <-done; err != nil || len(errs) > 0 {
					t.Errorf("own: %v, reported %v", err, errs)
				}
			} else {
				if err := <-done; !errors.Is(err, errReported) || got != nil || len(errs) != 1 {
					t.Fatalf("own: %v, failed %v, reported %v", err, got, errs)
				}
				got = errs[0]
			}
			if !errors.Is(got, ErrHandler) || !errors.Is(got, c.want) {
				t.Errorf("reported %v", got)
			}
			if ce, ok := errors.AsType[*sarama.ConsumerError](got); !ok || ce.Topic != "t" {
				t.Errorf("reported %T", got)
			}
		})
	}
}

// An error that a handler returns when its context has ended is reported, unless it says only that the context has ended.
func TestHandlerOfRunThatFailsAtItsEnd(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		result func(ctx context.Context) error
		want   error
	}{
		"context's error": {func(ctx context.Context) error { return fmt.Errorf("work: %w", ctx.Err()) }, nil},
		"context's cause": {context.Cause, nil},
		"its own":         {func(context.Context) error { return boom }, boom},
		"both":            {func(ctx context.Context) error { return errors.Join(boom, ctx.Err()) }, boom},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, tp("t", 0))
			r := newRunRig(t, func(ctx context.Context, _ *Partition) error {
				<-ctx.Done()
				return c.result(ctx)
			}, nil)
			_, done := r.opened(h)
			synctest.Wait()
			h.release(t, done)
			if errs := r.errors(); !errors.Is(errors.Join(errs...), c.want) {
				t.Errorf("reported %v", errs)
			}
		})
	}
}

// The Observer is notified of a message before the handler gets it. Trust is checked after that, however long the Observer took.
func TestObserverHearsBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		var got []int64
		r := newRunRig(t, func(_ context.Context, p *Partition) error {
			for m := range p.Messages() {
				got = append(got, m.Offset)
			}
			return nil
		}, nil)
		var heard []int64
		r.observer = func(e Event) {
			if e.Kind != Message {
				return
			}
			if heard = append(heard, e.Offset); e.Offset == 2 {
				h.distrust.Store(true)
			}
			assert.Equal(t, len(got), len(heard)-1, "heard %v; what the handler has had", heard)
		}
		_, done := r.opened(h, 0, 1, 2, 3)
		time.Sleep(time.Second)
		h.lose()
		<-done
		if !slices.Equal(heard, []int64{0, 1, 2}) || !slices.Equal(got, []int64{0, 1}) {
			t.Errorf("heard %v, handed out %v", heard, got)
		}
	})
}

// The first message is not handed out while a commit of a position before it may be stored, one that has passed no message: the
// program may commit the message in a transaction, which that commit would undo.
func TestFirstMessageWaitsForACommitInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, nil)
		p, s, h := newPartition(t)
		answer := make(chan struct{})
		r.store.Refuse = func(c offsets.OffsetCommit) error {
			if c.Offset == 5 {
				<-answer
			}
			return nil
		}
		p.tracker = r.committer.Open(p.id, h, sarama.Uuid{1}, 0, "")
		time.Sleep(2 * r.group.settings.CommitInterval)
		got := make(chan int64, 1)
		go func() {
			for m := range p.Messages() {
				got <- m.Offset
			}
		}()
		s.batches <- fetch.Batch{Next: 5, LeaderEpoch: -1}
		time.Sleep(2 * r.group.settings.CommitInterval)
		s.send(5)
		time.Sleep(time.Second)
		if len(got) > 0 {
			t.Error("handed out before the answer")
		}
		close(answer)
		if <-got != 5 || r.store.Get(p.id).Offset != 5 {
			t.Errorf("stored %d", r.store.Get(p.id).Offset)
		}
	})
}
