package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// recorder is a handler that marks everything, and lets a test in.
type recorder struct {
	mu       sync.Mutex
	got      map[partition][]int64
	calls    []string
	delay    time.Duration
	done     func(*sarama.ConsumerMessage)
	each     func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error
	ending   func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim)
	setupErr error
}

// before lets do run before a message is marked.
func (h *recorder) before(do func(c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage)) {
	h.each = func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
		do(c, m)
		s.MarkMessage(m, "")
		return nil
	}
}

func (h *recorder) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, what)
}

func (h *recorder) called() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *recorder) Setup(sarama.ConsumerGroupSession) error {
	h.note("setup")
	return h.setupErr
}

func (h *recorder) Cleanup(sarama.ConsumerGroupSession) error {
	h.note("cleanup")
	return nil
}

func (h *recorder) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	name := fmt.Sprintf("%s:%d", c.Topic(), c.Partition())
	h.note("open " + name)
	defer h.note("close " + name)
	for m := range c.Messages() {
		if h.delay > 0 {
			time.Sleep(h.delay)
		}
		h.take(m)
		if h.each != nil {
			if err := h.each(s, c, m); err != nil {
				return err
			}
		} else {
			s.MarkMessage(m, "")
		}
	}
	if h.ending != nil {
		h.ending(s, c)
	}
	return nil
}

// handle is ConsumeClaim for Run.
func (h *recorder) handle(_ context.Context, p *consumer.Partition) error {
	name := fmt.Sprintf("%s:%d", p.Topic(), p.ID())
	h.note("open " + name)
	defer h.note("close " + name)
	for m := range p.Messages() {
		if h.delay > 0 {
			time.Sleep(h.delay)
		}
		h.take(m)
		p.Mark(m)
	}
	return nil
}

// take notes that a message was processed.
func (h *recorder) take(m *sarama.ConsumerMessage) {
	h.mu.Lock()
	p := partition{Topic: m.Topic, ID: m.Partition}
	if h.got == nil {
		h.got = map[partition][]int64{}
	}
	h.got[p] = append(h.got[p], m.Offset)
	h.mu.Unlock()
	h.done(m)
}

func (h *recorder) offsets(topic string, p int32) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got[partition{Topic: topic, ID: p}])
}

func (h *recorder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, o := range h.got {
		n += len(o)
	}
	return n
}
