package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer/internal/offsets"
)

type pumpRig struct {
	*pump
	s    *fakeStream
	h    *fakeHolder
	stop context.CancelCauseFunc
	done chan error
	got  []int64 // handed out, as told
}

func newPump(t *testing.T, limit int) *pumpRig {
	t.Helper()
	h, s := newHolder(t, tp("t", 0)), newStream(tp("t", 0))
	r := &pumpRig{s: s, h: h, done: make(chan error, 1)}
	r.pump = &pump{
		claim:     newClaim(h, s, 0),
		limit:     limit,
		handedOut: func(m *sarama.ConsumerMessage) *callback { r.got = append(r.got, m.Offset); return nil },
		messages:  prometheus.NewCounter(prometheus.CounterOpts{Name: "m_total", Help: "M."}),
		bytes:     prometheus.NewCounter(prometheus.CounterOpts{Name: "b_total", Help: "B."}),
	}
	ctx, stop := context.WithCancelCause(t.Context())
	r.stop = stop
	t.Cleanup(func() { stop(nil) })
	go func() { r.done <- r.run(ctx) }()
	return r
}

// take receives as a handler does that ranges over Messages.
func (r *pumpRig) take(t *testing.T) int64 {
	t.Helper()
	m, ok := <-r.claim.out
	if !ok {
		t.Fatal("Messages is closed")
	}
	return m.Offset
}

func TestPumpKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPump(t, 1<<20)
		go func() {
			for i := range int64(5000) {
				r.s.send(i)
			}
			r.s.AsyncClose()
		}()
		for i := range int64(5000) {
			if i%1000 == 0 {
				synctest.Wait() // the queue fills
			}
			if got := r.take(t); got != i {
				t.Fatalf("got %d, want %d", got, i)
			}
		}
		if _, ok := <-r.claim.Messages(); ok {
			t.Error("a message too many")
		}
		if err := <-r.done; !errors.Is(err, errStreamEnded) {
			t.Errorf("ended with %v", err)
		}
		if len(r.got) != 5000 {
			t.Errorf("told of %d messages", len(r.got))
		}
	})
}

// A handler that has a message in hand when trust ends gets no other, however it asks.
func TestPumpHandsOutNothingUntrusted(t *testing.T) {
	for name, ask := range map[string]func(*claim){
		"waits":     func(*claim) {},
		"is hinted": (*claim).hint,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPump(t, 1<<20)
				r.s.send(0, 1, 2, 3, 4)
				synctest.Wait()
				if got := r.take(t); got != 0 {
					t.Fatalf("got %d", got)
				}
				time.Sleep(time.Second) // the handler works
				synctest.Wait()
				r.h.distrust.Store(true) // and nobody says so
				ask(r.claim)
				for m := range r.claim.out {
					t.Errorf("message %d was handed out without trust", m.Offset)
				}
				if err := <-r.done; !errors.Is(err, offsets.ErrLost) {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// A handler that says that it is back is found at once; one that does not, within a sixteenth of the time that it was away.
func TestPumpFindsItsHandler(t *testing.T) {
	for name, hint := range map[string]func(*pumpRig){
		"silent": nil,
		"hints":  func(r *pumpRig) { r.claim.hint() },
		"asks":   func(r *pumpRig) { r.claim.Messages() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPump(t, 1<<20)
				r.s.send(0, 1, 2, 3, 4)
				for _, work := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 10 * time.Second} {
					time.Sleep(work)
					most := min(max(work/16, minPause), maxPause)
					if hint != nil {
						hint(r)
						most = 0
					}
					came := time.Now()
					r.take(t)
					if waited := time.Since(came); waited > most {
						t.Errorf("after %v of work: waited %v, want %v at most", work, waited, most)
					}
				}
				asked := r.h.asked.Load()
				time.Sleep(time.Second) // of work again
				if n := r.h.asked.Load() - asked; n > 200 {
					t.Errorf("asked for trust %d times in a second", n)
				}
				r.stop(errRevokedInTest)
				if err := <-r.done; !errors.Is(err, errRevokedInTest) {
					t.Errorf("ended with %v", err)
				}
				if m, ok := <-r.claim.Messages(); ok {
					t.Errorf("got %d after the end", m.Offset)
				}
			})
		})
	}
}

func TestPumpOffersNothingMoreAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPump(t, 1<<20)
		r.s.send(0, 1, 2, 3, 4)
		synctest.Wait()
		r.stop(errRevokedInTest)
		if err := <-r.done; !errors.Is(err, errRevokedInTest) {
			t.Errorf("ended with %v", err)
		}
		if m, ok := <-r.claim.Messages(); ok {
			t.Errorf("got %d after the end", m.Offset)
		}
		if len(r.got) != 0 {
			t.Errorf("told of %v", r.got)
		}
	})
}

func TestFullQueueIsWaitedForAndThenPausesItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := size(&sarama.ConsumerMessage{Value: []byte("v")})
		r := newPump(t, 10*one)
		for i := range int64(10) {
			r.s.send(i)
		}
		synctest.Wait()
		if len(r.s.messages) != 0 || r.s.paused.Load() {
			t.Fatalf("%d left, paused %v", len(r.s.messages), r.s.paused.Load())
		}
		r.s.send(10, 11, 12)
		time.Sleep(patience - time.Millisecond)
		synctest.Wait()
		if len(r.s.messages) != 3 || r.s.paused.Load() {
			t.Fatalf("%d left while the handler may still come, paused %v", len(r.s.messages), r.s.paused.Load())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if len(r.s.messages) != 0 || !r.s.paused.Load() {
			t.Fatalf("%d left after patience, paused %v: neighbours wait", len(r.s.messages), r.s.paused.Load())
		}
		for i := range int64(4) {
			if got := r.take(t); got != i {
				t.Fatalf("got %d", got)
			}
		}
		synctest.Wait()
		if r.s.paused.Load() {
			t.Error("still paused with 9 in the queue")
		}
	})
}

func TestHandlerThatKeepsUpIsNeverPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := size(&sarama.ConsumerMessage{Value: []byte("v")})
		r := newPump(t, 10*one)
		go func() {
			for i := range int64(1000) {
				r.s.send(i)
			}
		}()
		for range 1000 {
			r.take(t)
			time.Sleep(patience / 20)
		}
		if n := r.s.pauses.Load(); n != 0 {
			t.Errorf("paused %d times", n)
		}
	})
}

func TestUserPauseAndFullQueueAddUp(t *testing.T) {
	s := newStream(tp("t", 0))
	g := &gate{stream: s}
	steps := []struct {
		do   func()
		want bool
	}{
		{func() { g.setUser(true) }, true},
		{func() { g.setFull(true) }, true},
		{func() { g.setUser(false) }, true},
		{func() { g.setFull(false) }, false},
		{func() { g.setFull(true) }, true},
		{func() { g.setUser(true) }, true},
		{func() { g.setFull(false) }, true},
		{func() { g.setUser(false) }, false},
	}
	for i, step := range steps {
		step.do()
		if s.paused.Load() != step.want {
			t.Fatalf("step %d: paused %v", i, !step.want)
		}
	}
}

type interceptorFunc func(*sarama.ConsumerMessage)

func (f interceptorFunc) OnConsume(m *sarama.ConsumerMessage) { f(m) }

func TestInterceptorsSeeEachMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPump(t, 1<<20)
		var seen []int64
		user := &membership{users: newCallbacks(time.Minute, slog.New(slog.DiscardHandler), nil, nil)}
		r.prepare = user.intercept
		user.interceptors = []sarama.ConsumerInterceptor{
			interceptorFunc(func(m *sarama.ConsumerMessage) { seen = append(seen, m.Offset) }),
			interceptorFunc(func(*sarama.ConsumerMessage) { panic("swallowed, as sarama does") }),
			interceptorFunc(func(m *sarama.ConsumerMessage) { m.Value = []byte("changed") }),
		}
		r.s.send(0, 1, 2)
		for range 2 {
			if m := <-r.claim.Messages(); string(m.Value) != "changed" {
				t.Errorf("%d: %q", m.Offset, m.Value)
			}
			synctest.Wait()
		}
		if !slices.Equal(seen, []int64{0, 1, 2}) {
			t.Errorf("seen %v", seen)
		}
	})
}
