package scenarios

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// handler is a handler that notes what it observes, and calls functions of the case.
type handler struct {
	m *member

	// onSetup, onClaim and onCleanup are called by the methods of the handler; nil does nothing, but that a ConsumeClaim marks
	// all messages.
	onSetup, onCleanup func(sarama.ConsumerGroupSession) error
	onClaim            func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error

	isQuiet  bool // it notes nothing by itself
	isFull   bool // it notes what is the same in all cases, too
	isClosed bool // Close ends it: sarama's closes Messages and ends the context of the session in any order, so both are waited for

	setups, cleanups, running, begun, messages atomic.Int32

	mu      sync.Mutex
	session sarama.ConsumerGroupSession                  // of the last Setup
	open    map[topicPartition]sarama.ConsumerGroupClaim // of the ConsumeClaims that run
}

type topicPartition struct {
	topic     string
	partition int32
}

// handler returns a handler for a member.
func (m *member) handler() *handler {
	return &handler{m: m, open: map[topicPartition]sarama.ConsumerGroupClaim{}}
}

// claiming returns a handler with a function for ConsumeClaim.
func (m *member) claiming(onClaim func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error) *handler {
	h := m.handler()
	h.onClaim = onClaim
	return h
}

// Setup implements sarama.ConsumerGroupHandler.
func (h *handler) Setup(s sarama.ConsumerGroupSession) error {
	defer h.setups.Add(1)
	h.mu.Lock()
	h.session = s
	h.mu.Unlock()
	if !h.isQuiet {
		h.m.note("Setup", "context %s, %d ConsumeClaims run", h.m.s.life(s.Context()), h.running.Load())
		h.m.note("Claims in Setup", "%s", h.m.s.claims(s.Claims()))
	}
	if h.isFull {
		h.m.note("MemberID", "%s", emptyOr(s.MemberID()))
		h.m.noteGeneration(s)
	}
	if h.onSetup != nil {
		return h.onSetup(s)
	}
	return nil
}

func emptyOr(id string) string {
	if id == "" {
		return "empty"
	}
	return "not empty"
}

// noteGeneration notes how the generation compares to the last one that was noted.
func (m *member) noteGeneration(s sarama.ConsumerGroupSession) {
	g := s.GenerationID()
	last := m.generation.Swap(g)
	switch {
	case g < 0:
		m.note("GenerationID", "%d", g)
	case last == 0:
		m.note("GenerationID", "positive")
	case g > last:
		m.note("GenerationID", "grown")
	default:
		m.note("GenerationID", "not grown")
	}
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (h *handler) Cleanup(s sarama.ConsumerGroupSession) error {
	defer h.cleanups.Add(1)
	if !h.isQuiet {
		h.m.note("Cleanup", "context %s, %d ConsumeClaims run", h.m.s.life(s.Context()), h.running.Load())
		h.m.note("Claims in Cleanup", "%s", h.m.s.claims(s.Claims()))
	}
	if h.onCleanup != nil {
		return h.onCleanup(s)
	}
	return nil
}

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	p := c.Partition()
	h.running.Add(1)
	defer h.running.Add(-1)
	h.note(c, "ConsumeClaim", "begins, after %d Setups, context %s, its own claim in Claims: %t",
		h.setups.Load(), h.m.s.life(s.Context()), slices.Contains(s.Claims()[c.Topic()], p))
	if h.isFull {
		h.note(c, "InitialOffset", "%d", c.InitialOffset())
	}
	h.setOpen(c, true) // from here on the case may go on, and end the session
	h.begun.Add(1)
	defer h.setOpen(c, false)
	if h.onClaim != nil {
		return h.onClaim(s, c)
	}
	return h.markAll(s, c)
}

// markAll marks all messages, and notes what they are and how the session stands when they end.
func (h *handler) markAll(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		h.noteMessage(c, m)
		s.MarkMessage(m, "")
		h.messages.Add(1)
	}
	h.noteEnd(s, c)
	return nil
}

// noteMessage notes a message.
func (h *handler) noteMessage(c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
	h.note(c, "Messages", "%d", m.Offset)
}

// noteEnd notes how the session stands when the messages of a claim have ended.
func (h *handler) noteEnd(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) {
	if h.isClosed {
		<-s.Context().Done()
	}
	h.note(c, "ConsumeClaim", "Messages is closed, context %s, its own claim in Claims: %t",
		h.m.s.life(s.Context()), slices.Contains(s.Claims()[c.Topic()], c.Partition()))
}

// note notes an observation in the lane of a partition.
func (h *handler) note(c sarama.ConsumerGroupClaim, lane, format string, args ...any) {
	if h.isQuiet {
		return
	}
	if c.Topic() != h.m.s.topic {
		lane += " of another topic,"
	}
	h.m.note(fmt.Sprintf("%s %d", lane, c.Partition()), format, args...)
}

func (h *handler) setOpen(c sarama.ConsumerGroupClaim, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id := (topicPartition{c.Topic(), c.Partition()}); open {
		h.open[id] = c
	} else {
		delete(h.open, id)
	}
}

// claim returns the claim of a partition of the scenario's topic that is open.
func (h *handler) claim(p int32) sarama.ConsumerGroupClaim {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[topicPartition{h.m.s.topic, p}]
}

// opens returns how many partitions are open.
func (h *handler) opens() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open)
}

// sess returns the session of the last Setup.
func (h *handler) sess() sarama.ConsumerGroupSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// waitOpen waits until n partitions are open.
func (h *handler) waitOpen(n int) {
	h.m.s.t.Helper()
	h.m.s.until(fmt.Sprintf("%s has %d partitions open", h.m.name, n), func() bool { return h.opens() == n })
}

// waitMessages waits until n messages have been handled, and ConsumeClaim was called for both partitions.
func (h *handler) waitMessages(n int32) {
	h.m.s.t.Helper()
	h.m.s.until(fmt.Sprintf("%s has handled %d messages", h.m.name, n), func() bool { return h.messages.Load() >= n && h.begun.Load() >= 2 })
}

// waitBegun waits until n ConsumeClaims have begun.
func (h *handler) waitBegun(n int32) {
	h.m.s.t.Helper()
	h.m.s.until(fmt.Sprintf("%s has begun %d ConsumeClaims", h.m.name, n), func() bool { return h.begun.Load() >= n })
}

// quiet returns a handler that notes nothing by itself: which partitions it gets depends on the strategy.
func (m *member) quiet() *handler {
	h := m.handler()
	h.isQuiet = true
	return h
}
