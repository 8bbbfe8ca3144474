package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// A partition whose handler fails at once, again and again, leaves the others the time: a session ends when the next one may
// begin.
func TestHandlerThatFailsLeavesTheOthersTime(t *testing.T) {
	inRig(t, 3, func(t *testing.T, r *rig) {
		r.produce(1, 0)
		a := r.member("a", nil)
		var handled, sessions atomic.Int32
		ctx, stop := context.WithCancel(t.Context())
		done := a.loop(ctx, funcs{
			setup: func(sarama.ConsumerGroupSession) error { sessions.Add(1); return nil },
			claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				for m := range c.Messages() {
					if m.Partition == 0 {
						return errWork
					}
					time.Sleep(10 * time.Millisecond)
					handled.Add(1)
					s.MarkMessage(m, "")
				}
				return nil
			},
		})
		time.Sleep(10 * time.Second)
		r.produce(10000, 1, 2)
		before := sessions.Load()
		time.Sleep(60 * time.Second)
		if n := handled.Load(); n < 10000 { // 12,000 at most
			t.Errorf("the others have handled %d messages in a minute", n)
		}
		if n := sessions.Load() - before; n < 55 || n > 61 {
			t.Errorf("%d sessions in a minute", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Consume: %v", err)
		}
	})
}

// A handler's error is reported at once, also in a session younger than a second, which goes on until it is that old. An older
// one ends at once.
func TestHandlerThatFailsIsReportedAtOnce(t *testing.T) {
	for name, age := range map[string]time.Duration{"young": 0, "old": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				a := r.member("a", nil)
				failed := make(chan time.Time, 1)
				var began time.Time
				a.startWith(funcs{
					setup: func(sarama.ConsumerGroupSession) error { began = time.Now(); return nil },
					claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
						if c.Partition() == 0 {
							time.Sleep(age)
							failed <- time.Now()
							return errWork
						}
						<-s.Context().Done()
						return nil
					},
				}, topic)
				at := <-failed
				until(t, "the error is reported", func() bool { return errors.Is(errors.Join(a.errors()...), errWork) })
				if took := time.Since(at); took > 10*time.Millisecond {
					t.Errorf("the error was reported after %v", took)
				}
				if err := <-a.done; err != nil {
					t.Errorf("Consume: %v", err)
				}
				end := at
				if age == 0 {
					end = began.Add(time.Second)
				}
				if late := time.Since(end); late < 0 || late > 100*time.Millisecond {
					t.Errorf("Consume returned %v after it was to", late)
				}
			})
		})
	}
}
