package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/party"
)

var errWork = errors.New("can't work")

// sessions is a handler that records how its sessions begin and end.
type sessions struct {
	*recorder
	claim func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error

	mu     sync.Mutex
	begun  []time.Time
	claims []map[string][]int32
	causes []error
}

func (h *sessions) Setup(s sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.claims = append(h.begun, time.Now()), append(h.claims, s.Claims())
	return h.recorder.Setup(s)
}

func (h *sessions) Cleanup(s sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.causes = append(h.causes, context.Cause(s.Context()))
	return h.recorder.Cleanup(s)
}

func (h *sessions) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	if h.claim != nil {
		return h.claim(s, c)
	}
	return h.recorder.ConsumeClaim(s, c)
}

// last returns the claims that the last Setup saw.
func (h *sessions) last() map[string][]int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims[len(h.claims)-1]
}

func (h *sessions) times() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.begun)
}

// loop calls Consume again and again, as sarama's users do, until ctx ends or the call fails, and no more than 100 times.
func (m *member) loop(ctx context.Context, h sarama.ConsumerGroupHandler) <-chan error {
	done := make(chan error, 1)
	go func() {
		var err error
		for calls := 0; err == nil && ctx.Err() == nil && calls < 100; calls++ {
			err = m.group.Consume(ctx, []string{topic}, h)
		}
		done <- err
	}()
	return done
}

// A handler that fails at once costs a session a second, and nothing else: the member stays, and keeps its claims.
func TestSessionsBeginOnceASecond(t *testing.T) {
	for name, fail := range map[string]func(h *sessions){
		"ConsumeClaim": func(h *sessions) {
			h.claim = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error { return errWork }
		},
		"Setup": func(h *sessions) { h.setupErr = errWork },
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				a := r.member("a", nil)
				h := &sessions{recorder: a.h}
				fail(h)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range 100 {
						if ctx.Err() != nil {
							return
						}
						if err := a.group.Consume(ctx, []string{topic}, h); err != nil && !errors.Is(err, errWork) {
							t.Errorf("Consume: %v", err)
						}
					}
				}()
				time.Sleep(30 * time.Second)
				stop()
				<-done
				begun := h.times()
				for i := range begun[1:] {
					if d := begun[i+1].Sub(begun[i]); d < time.Second || d > 1100*time.Millisecond {
						t.Errorf("a session began %v after the one before", d)
					}
				}
				if n := len(begun); n < 25 {
					t.Errorf("%d sessions in 30 s", n)
				}
				if joined, claimed := a.log.count(consumer.Joined), a.log.count(consumer.Claimed); joined != 1 || claimed != 2 {
					t.Errorf("joined %d times, claimed %d times", joined, claimed)
				}
			})
		})
	}
}

// So it does when each call has other topics, and the member joins anew for it.
func TestSessionsWithOtherTopicsBeginOnceASecond(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.createTopic("other", 2)
		a := r.member("a", nil)
		h := &sessions{recorder: a.h, claim: func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error { return errWork }}
		began := time.Now()
		for i := range 10 {
			if err := a.group.Consume(t.Context(), []string{topic, "other"}[:1+i%2], h); err != nil {
				t.Errorf("Consume: %v", err)
			}
		}
		if d := time.Since(began); d < 9*time.Second || d > 12*time.Second {
			t.Errorf("10 sessions took %v", d)
		}
	})
}

// A session that has lasted is followed at once by the next. One that has not is waited for, and that wait ends with ctx and with
// Close.
func TestWaitForTheNextSession(t *testing.T) {
	for name, end := range map[string]func(a *member, stop func()){
		"ctx":   func(_ *member, stop func()) { stop() },
		"Close": func(a *member, _ func()) { _ = a.group.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				a := r.member("a", nil)
				h := &sessions{recorder: a.h, claim: func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error {
					if a.h.count() == 0 {
						time.Sleep(10 * time.Second)
						a.h.take(&sarama.ConsumerMessage{Topic: topic})
					}
					return errWork
				}}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				done := a.loop(ctx, h)
				until(t, "a second session", func() bool { return len(h.times()) == 2 })
				if d := h.times()[1].Sub(h.times()[0]); d > 10*time.Second+100*time.Millisecond {
					t.Errorf("the second session began %v after the first, which had lasted for 10 s", d)
				}
				time.Sleep(500 * time.Millisecond)
				began := time.Now()
				end(a, stop)
				if err := <-done; err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
					t.Errorf("Consume: %v", err)
				}
				if d := time.Since(began); d > 100*time.Millisecond || len(h.times()) != 2 {
					t.Errorf("Consume returned after %v, in session %d", d, len(h.times()))
				}
			})
		})
	}
}

// The causes of the session's context are sarama's where there is a counterpart.
func TestCauseOfTheSessionsContext(t *testing.T) {
	errStop := errors.New("stop")
	for name, c := range map[string]struct {
		end  func(a *member, stop context.CancelCauseFunc)
		want []error
		ret  error
	}{
		"a handler returns": {
			end:  func(a *member, _ context.CancelCauseFunc) { a.r.produce(1, 0) },
			want: []error{sarama.ErrSessionConsumeClaimExited},
		},
		"ctx": {
			end:  func(_ *member, stop context.CancelCauseFunc) { stop(errStop) },
			want: []error{errStop},
		},
		"Close": {
			end:  func(a *member, _ context.CancelCauseFunc) { _ = a.group.Close() },
			want: []error{context.Canceled},
		},
		"the membership is lost": {
			end:  func(a *member, _ context.CancelCauseFunc) { a.r.takeName("a") },
			want: []error{sarama.ErrSessionHeartbeatFailed, party.ErrNameTaken},
			ret:  party.ErrNameTaken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				a := r.member("a", nil)
				h := &sessions{recorder: a.h}
				a.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
					return errWork
				}
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				done := make(chan error, 1)
				go func() { done <- a.group.Consume(ctx, []string{topic}, h) }()
				until(t, "both are open", func() bool { return len(a.owns()) == 2 })
				c.end(a, stop)
				if err := <-done; !errors.Is(err, c.ret) {
					t.Errorf("Consume: %v", err)
				}
				for _, want := range c.want {
					if len(h.causes) != 1 || !errors.Is(h.causes[0], want) {
						t.Errorf("the causes are %v, want %v", h.causes, want)
					}
				}
			})
		})
	}
}

// A handler that builds its state in Setup from Claims, and fails for a partition that it does not know, gets every message:
// Setup sees each partition that the member has or is about to get.
func TestStateFromClaimsInSetup(t *testing.T) {
	inRig(t, 6, func(t *testing.T, r *rig) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var members []*member
		var handlers []*sessions
		var done []<-chan error
		stops := make([]context.CancelFunc, 3)
		for i, name := range []string{"a", "b", "c"} {
			m := r.member(name, nil)
			h := &sessions{recorder: m.h}
			h.claim = func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				if !slices.Contains(h.last()[c.Topic()], c.Partition()) {
					return fmt.Errorf("%w: no state for %d", errWork, c.Partition())
				}
				return m.h.ConsumeClaim(s, c)
			}
			own, end := context.WithCancel(ctx)
			members, handlers, stops[i] = append(members, m), append(handlers, h), end
			done = append(done, m.loop(own, h))
			r.produce(10, 0, 1, 2, 3, 4, 5)
			until(t, "all is read", func() bool { return total(members...) == 60*(i+1) })
		}
		for i := range 2 {
			before := len(handlers[2].times())
			stops[i]()
			if err := <-done[i]; err != nil {
				t.Errorf("Consume: %v", err)
			}
			r.produce(10, 0, 1, 2, 3, 4, 5)
			until(t, "all is read", func() bool { return total(members...) == 60*(i+4) })
			if n := len(handlers[2].times()) - before; n > 2 {
				t.Errorf("%d sessions for one member that left", n)
			}
		}
		if n := len(handlers[2].last()[topic]); n != 6 {
			t.Errorf("the last Setup saw %d partitions", n)
		}
		stop()
		if err := <-done[2]; err != nil {
			t.Errorf("Consume: %v", err)
		}
		r.check(false)
	})
}

// A ConsumeClaim, or Fence, that goes on after its session has ended is lost after RebalanceTimeout, and Consume returns. The
// marks of the others are stored, and another member gets all.
func TestStuckHandlerAtTheEndOfASession(t *testing.T) {
	const timeout = 20 * time.Second
	for _, in := range []string{"ConsumeClaim", "Fence"} {
		t.Run(in, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				hung := newGate()
				defer hung.open()
				a := r.member("a", func(o *consumer.Options) {
					o.RebalanceTimeout = timeout
					if in == "Fence" {
						o.Config.Consumer.Offsets.AutoCommit.Enable = false
						o.Fence = func(_ context.Context, _ string, partition int32) error {
							if partition < 2 {
								hung.wait()
							}
							return nil
						}
					}
				})
				var ended time.Time
				h := &sessions{recorder: a.h, claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
					switch c.Partition() {
					case 0, 1:
						hung.wait()
					case 2:
						time.Sleep(5 * time.Second)
						ended = time.Now()
					case 3:
						<-c.Messages() // a message that is dropped unread would hold the mark back
						<-s.Context().Done()
						time.Sleep(timeout - time.Second)
						s.MarkOffset(topic, 3, 1, "")
					}
					return errWork
				}}
				r.produce(1, 0, 1, 2, 3)
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					err = a.group.Consume(t.Context(), []string{topic}, h)
				}()
				until(t, "all are claimed", func() bool { return a.log.holds() == 4 })
				time.Sleep(7 * time.Second)
				b := r.member("b", nil).start() // what it is to get of a is revoked
				<-done
				if d := time.Since(ended); !errors.Is(err, ownership.ErrStuck) || d < timeout || d > timeout+time.Second {
					t.Errorf("Consume returned %v after the session's end: %v", d, err)
				}
				if n := r.committed(topic, 3); in == "ConsumeClaim" && n != 1 {
					t.Errorf("stored %d of a partition whose ConsumeClaim has returned in time", n)
				}
				if d := until(t, "b has all", func() bool { return len(b.owns()) == 4 }); d > time.Second {
					t.Errorf("b has all %v later", d)
				}
				b.leave()
			})
		})
	}
}

// A handler that looks at its session's context alone learns at once that the membership is lost.
func TestHandlerThatWaitsForTheContext(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		h := &sessions{recorder: a.h, claim: func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
			<-s.Context().Done()
			return context.Cause(s.Context())
		}}
		a.startWith(h, topic)
		until(t, "both are claimed", func() bool { return a.log.holds() == 2 })
		time.Sleep(time.Second)
		began := time.Now()
		r.takeName("a")
		if err := <-a.done; !errors.Is(err, party.ErrNameTaken) || errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Consume: %v", err)
		}
		if d := time.Since(began); d > 20*time.Second || len(h.causes) != 1 || !errors.Is(h.causes[0], sarama.ErrSessionHeartbeatFailed) {
			t.Errorf("Consume returned after %v, the causes are %v", d, h.causes)
		}
		if errs := a.errors(); len(errs) > 0 {
			t.Errorf("reported %v", errs)
		}
	})
}
