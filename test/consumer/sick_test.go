package consumer_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/ownership"
)

// panicky is a handler whose Setup and Cleanup panic.
type panicky struct {
	*recorder
	setup bool
}

func (p panicky) Setup(s sarama.ConsumerGroupSession) error {
	if p.setup {
		panic("no database")
	}
	return p.recorder.Setup(s)
}

func (panicky) Cleanup(sarama.ConsumerGroupSession) error { panic("no broom") }

// A callback of the user's may panic: that ends the call and is reported; no message is lost.
func TestCallbacksPanic(t *testing.T) {
	t.Run("Observer", func(t *testing.T) {
		inRig(t, 4, func(t *testing.T, r *rig) {
			kinds, said := map[consumer.EventKind]bool{}, &logtest.Log{}
			var a *member
			a = r.member("a", func(o *consumer.Options) {
				o.Logger = slog.New(slog.NewTextHandler(said, nil))
				o.Observer = func(e consumer.Event) {
					a.mu.Lock()
					kinds[e.Kind] = true
					a.mu.Unlock()
					panic("ouch at " + string(e.Kind))
				}
			})
			a.start()
			b := r.member("b", nil).start()
			until(t, "both have two", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
			r.produce(5, 0, 1, 2, 3)
			until(t, "20 messages", func() bool { return total(a, b) == 20 })
			a.leave()
			until(t, "b has all", func() bool { return len(b.owns()) == 4 })
			b.leave()
			for _, kind := range []consumer.EventKind{consumer.Claimed, consumer.Opened, consumer.Message, consumer.Committed, consumer.Releasing} {
				if !kinds[kind] {
					t.Errorf("not told of %s", kind)
				}
				if err := errors.Join(a.errors()...); !errors.Is(err, ownership.ErrCallback) || !strings.Contains(err.Error(), "ouch at "+string(kind)) {
					t.Errorf("Errors does not say that Observer panicked at %s", kind)
				}
			}
			// The owner's events come from the owner, the consumer's own from the consumer; each has a stack.
			if lines, stacks := said.Count(`kind="panic in Observer"`), said.Count("stack="); lines == 0 || lines > 6 || stacks != 2 {
				t.Errorf("%d lines and %d stacks of an Observer that always panics:\n%s", lines, stacks, said)
			}
			if got := total(a, b); got != 20 {
				t.Errorf("%d messages of 20", got)
			}
		})
	})
	for _, setup := range []bool{true, false} {
		t.Run(fmt.Sprintf("Setup %t, Cleanup", setup), func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(5, 0, 1)
				a := r.member("a", nil)
				done := make(chan error, 1)
				ctx := t.Context()
				go func() { done <- a.group.Consume(ctx, []string{topic}, panicky{a.h, setup}) }()
				if !setup {
					until(t, "10 messages", func() bool { return total(a) == 10 })
					go a.group.Close()
				}
				err := <-done
				if !errors.Is(err, ownership.ErrCallback) || !strings.Contains(err.Error(), "no broom") || strings.Contains(err.Error(), "no database") != setup {
					t.Errorf("Consume: %v", err)
				}
				b := r.member("b", nil).start()
				until(t, "b has all", func() bool { return len(b.owns()) == 2 })
				b.leave()
			})
		})
	}
}

// Close inside of the handler waits for itself, until it counts as stuck; the others get what the member has.
func TestCloseInsideTheHandler(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.StopTimeout = 10 * time.Second })
		a.h.each = func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
			s.MarkMessage(m, "")
			if c.Partition() == 0 {
				return a.group.Close()
			}
			return nil
		}
		b := r.member("b", nil)
		a.start()
		until(t, "a has all", func() bool { return len(a.owns()) == 4 })
		r.produce(3, 0, 1, 2, 3)
		start := time.Now()
		b.start()
		until(t, "b has all", func() bool { return len(b.owns()) == 4 })
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("b had all after %v", d)
		}
		if err := <-a.done; !errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Consume: %v", err)
		}
		until(t, "all messages", func() bool { return total(a, b) >= 12 })
		b.leave()
		r.check(true)
	})
}
