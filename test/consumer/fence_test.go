package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

// A Fence that does not return when its session ends makes the member leave, as a ConsumeClaim does. When it returns at last
// nothing comes of it, and another member has the partition.
func TestFenceThatHangs(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		release, returned := make(chan struct{}), make(chan struct{})
		var hung atomic.Bool
		g := r.mustGroup("a", func(o *consumer.Options) {
			o.RebalanceTimeout = 10 * time.Second
			o.Fence = func(_ context.Context, _ string, p int32) error {
				if p == 1 {
					hung.Store(true)
					defer close(returned)
					<-release
				}
				return nil
			}
		})
		h := &recorder{done: func(*sarama.ConsumerMessage) {}}
		h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
			until(t, "Fence hangs", hung.Load)
			return errDeaf
		}
		began := time.Now()
		err := g.Consume(t.Context(), []string{topic}, h)
		if took := time.Since(began); !errors.Is(err, ownership.ErrStuck) || !strings.Contains(err.Error(), "Fence") || took > 70*time.Second {
			t.Errorf("Consume: %v after %v, want ErrStuck that names Fence", err, took)
		}
		other := &recorder{done: func(*sarama.ConsumerMessage) {}}
		b := r.mustGroup("b", nil)
		done := make(chan error, 1)
		go func() { done <- b.Consume(t.Context(), []string{topic}, other) }()
		until(t, "the other member has it all", func() bool { return other.count() == 10 })
		close(release)
		select {
		case <-returned:
		case <-time.After(time.Minute):
			t.Errorf("Fence did not return: %v", h.called())
		}
		time.Sleep(time.Minute)
		closeOwn(t, g, time.Second, nil)
		closeOwn(t, b, time.Second, nil)
		if err := <-done; err != nil {
			t.Errorf("Consume of the other member: %v", err)
		}
		if calls := h.called(); slices.Contains(calls, "open "+topic+":1") {
			t.Errorf("the first member opened the partition: %v", calls)
		}
	})
}
