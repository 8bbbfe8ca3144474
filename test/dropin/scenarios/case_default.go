package scenarios

import (
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// defaultCases are handlers as programs have them that rely on what sarama's default strategy does at a rebalance.
func defaultCases() []Case {
	return []Case{
		{Name: "ConsumeClaim ends with the context alone", run: endsWithContext(false)},
		{Name: "ConsumeClaim ends with the context of Setup alone", run: endsWithContext(true)},
		{Name: "Setup makes the state of Claims", run: runStateOfSetup},
		{Name: "Cleanup marks while a second member joins", run: runMarksAtJoin},
		{Name: "Setup runs while a second member joins", run: runSetupAtJoin},
	}
}

// joinAndLeave has a second member come and go. check is called when the first member is alone, after the join, and after the
// leave. On the variants given the join is waited for until each has a partition, however long that takes.
func (s *scene) joinAndLeave(h func(*member) *handler, on []Variant, check func(when string, h1, h2 *handler)) {
	m1, m2 := s.muted(first, nil), s.muted("second", nil)
	h1, h2 := h(m1), h(m2)
	end1 := m1.loop(h1)
	h1.waitOpen(2)
	check("alone", h1, h2)
	end2 := m2.loop(h2)
	s.untilOn("each has a partition", func() bool { return oneEach(h1, h2) }, on...)
	check("after the join", h1, h2)
	end2()
	m2.close()
	h1.waitOpen(2)
	check("after the leave", h1, h2)
	end1()
}

// endsWithContext is a case in which a ConsumeClaim goes on after Messages was closed, until a context ends: that of its session,
// or that of the session which Setup was given.
func endsWithContext(ofSetup bool) func(*scene) {
	return func(s *scene) {
		newHandler := func(m *member) *handler {
			h := m.quiet()
			h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				if ofSetup {
					sess = h.sess()
				}
				for range c.Messages() {
				}
				<-sess.Context().Done()
				return nil
			}
			return h
		}
		on := []Variant{SaramaEager}
		if !ofSetup {
			on = []Variant{SaramaEager, OursEager, OursIncremental}
		}
		s.joinAndLeave(newHandler, on, func(when string, h1, h2 *handler) {
			s.note(when, "the first has %d partitions, the second %d", h1.opens(), h2.opens())
		})
	}
}

// runStateOfSetup counts messages. Setup reads the counts of its claims from a store, and each message stores the new count.
func runStateOfSetup(s *scene) {
	var mu sync.Mutex
	store := map[int32]int{}
	var without atomic.Int32
	newHandler := func(m *member) *handler {
		h, counts := m.quiet(), map[int32]int{}
		h.onSetup = func(sess sarama.ConsumerGroupSession) error {
			mu.Lock()
			defer mu.Unlock()
			clear(counts)
			for _, id := range sess.Claims()[s.topic] {
				counts[id] = store[id]
			}
			return nil
		}
		h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			mu.Lock()
			if _, ok := counts[c.Partition()]; !ok {
				without.Add(1)
			}
			mu.Unlock()
			for msg := range c.Messages() {
				mu.Lock()
				counts[c.Partition()]++
				store[c.Partition()] = counts[c.Partition()]
				mu.Unlock()
				sess.MarkMessage(msg, "")
				h.messages.Add(1)
			}
			return nil
		}
		return h
	}
	sent := int32(0)
	s.joinAndLeave(newHandler, Variants(), func(when string, h1, h2 *handler) {
		s.produce(1, 0, 1)
		sent += 2
		s.until("all messages are handled", func() bool { return h1.messages.Load()+h2.messages.Load() == sent })
		mu.Lock()
		defer mu.Unlock()
		s.note(when, "%d messages handled, the store says %d", sent, store[0]+store[1])
	})
	s.note("ConsumeClaim", "is called without the state of its partition: %t", without.Load() > 0)
}

// runMarksAtJoin has Cleanup mark what ConsumeClaim has taken, as pools of workers do.
func runMarksAtJoin(s *scene) {
	s.produce(1, 0, 1)
	newHandler := func(m *member) *handler {
		h := m.quiet()
		var mu sync.Mutex
		var taken []*sarama.ConsumerMessage
		h.onClaim = func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			for msg := range c.Messages() {
				mu.Lock()
				taken = append(taken, msg)
				mu.Unlock()
				h.messages.Add(1)
			}
			return nil
		}
		h.onCleanup = func(sess sarama.ConsumerGroupSession) error {
			mu.Lock()
			defer mu.Unlock()
			for _, msg := range taken {
				sess.MarkMessage(msg, "")
			}
			taken = nil
			return nil
		}
		return h
	}
	s.joinAndLeave(newHandler, Variants(), func(when string, h1, h2 *handler) {
		if when == "alone" {
			h1.waitMessages(2)
			return
		}
		again, on := int32(3), []Variant{SaramaCooperative, OursIncremental}
		if when == "after the leave" {
			again, on = 4, []Variant{OursIncremental}
		}
		s.untilOn("a message is handled again", func() bool { return h1.messages.Load()+h2.messages.Load() >= again }, on...)
		s.note(when, "2 messages were sent and handled %d times", h1.messages.Load()+h2.messages.Load())
	})
}

// runSetupAtJoin has a Setup that goes on until its session ends, or for a while.
func runSetupAtJoin(s *scene) {
	m1, m2 := s.muted(first, nil), s.muted("second", nil)
	h1, h2 := m1.quiet(), m2.quiet()
	inSetup := make(chan struct{})
	h1.onSetup = func(sess sarama.ConsumerGroupSession) error {
		if h1.setups.Load() == 0 {
			close(inSetup)
			s.settleUntil(func() bool { return sess.Context().Err() != nil })
			s.note("context in Setup", "%s", s.life(sess.Context()))
		}
		return nil
	}
	var early atomic.Bool
	h1.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if h1.setups.Load() == 1 {
			early.Store(true)
		}
		return h1.markAll(sess, c)
	}
	end1 := m1.loop(h1)
	<-inSetup
	end2 := m2.loop(h2)
	s.until("each has a partition", func() bool { return oneEach(h1, h2) })
	s.note("ConsumeClaim", "is called in that session: %t", early.Load())
	end2()
	end1()
}
