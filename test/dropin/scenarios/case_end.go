package scenarios

import (
	"context"
	"time"

	"github.com/IBM/sarama"
)

// endCases are about how a call of Consume begins and ends.
func endCases() []Case {
	return []Case{
		{Name: "the context of Consume is canceled", run: runCanceled},
		{Name: "the context of Consume has a cause", run: runCause},
		{Name: "the context of Consume has a deadline", run: runDeadline},
		{Name: "the context of Consume has ended before", run: runEndedBefore},
		{Name: "Close while Consume runs", run: runClose},
		{Name: "Consume after Close", run: runAfterClose},
		{Name: "Consume twice at the same time", run: runTwice},
		{Name: "Consume again", run: runAgain},
		{Name: "Consume again with other topics", run: runOtherTopics},
		{Name: "no topics", run: runNoTopics},
		{Name: "a topic twice", run: runTopicTwice},
		{Name: "a topic that does not exist", run: runUnknownTopic},
		{Name: "a topic name that is not allowed", Real: true, run: runInvalidTopic},
		{Name: "values of the context", run: runValues},
	}
}

func runCanceled(s *scene) {
	s.produce(3, 0, 1)
	m := s.member(nil)
	h := m.handler()
	h.isFull = true
	h.onCleanup = func(sarama.ConsumerGroupSession) error {
		m.noteGeneration(h.sess())
		return nil
	}
	c := m.consume(h)
	h.waitMessages(6)
	s.note("Claims while it runs", "%s", s.claims(h.sess().Claims()))
	c.end()
	s.note("stored", "%s, %s", s.stock(0), s.stock(1))
	s.note("after Consume", "%s", s.claims(h.sess().Claims()))
}

func runCause(s *scene) {
	m := s.member(nil)
	h := m.handler()
	ctx := newOrdered(time.Time{})
	c := m.consumeUnder(ctx, func() { ctx.end(context.Canceled, errCause) }, h, s.topic)
	h.waitOpen(2)
	c.end()
}

func runDeadline(s *scene) {
	m := s.member(nil)
	h := m.handler()
	ctx := newOrdered(time.Now().Add(time.Hour)) // it comes when the partitions are open
	c := m.consumeUnder(ctx, func() { ctx.end(context.DeadlineExceeded, nil) }, h, s.topic)
	h.waitOpen(2)
	c.end()
}

func runEndedBefore(s *scene) {
	m := s.member(nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h := m.handler()
	m.consumeTopics(ctx, h, s.topic).wait()
	s.note("Setup", "called %d times", h.setups.Load())
}

func runClose(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(nil)
	h := m.handler()
	h.isClosed = true
	c := m.consume(h)
	h.waitMessages(2)
	m.close()
	s.note("Cleanup", "has returned before Close: %t", h.cleanups.Load() > 0)
	c.wait()
	s.note("stored", "%s, %s", s.stock(0), s.stock(1))
	s.note("second Close", "%s", s.describe(m.group.Close()))
}

func runAfterClose(s *scene) {
	m := s.member(nil)
	m.close()
	m.consume(m.handler()).wait()
	_, open := <-m.group.Errors()
	s.note("Errors", "open: %t", open)
}

func runTwice(s *scene) {
	m := s.member(nil)
	h := m.handler()
	c := m.consume(h)
	h.waitOpen(2)
	other := &member{s: s, name: "the other call", group: m.group}
	h2 := other.quiet()
	c2 := other.consume(h2)
	s.untilOn("the other call returns", c2.returned, OursEager, OursIncremental)
	s.note("the other call", "has returned while the first runs: %t", c2.returned())
	c.end()
	s.untilOn("the other call is set up", func() bool { return h2.setups.Load() > 0 }, SaramaEager, SaramaCooperative)
	s.note("the other call", "is set up: %t", h2.setups.Load() > 0)
	c2.end()
}

func runAgain(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(nil)
	for i := range int32(2) {
		h := m.handler()
		h.isFull = true
		c := m.consume(h)
		h.waitMessages(2)
		c.end()
		s.note("stored", "%s, %s", s.stock(0), s.stock(1))
		if i == 0 {
			s.produce(1, 0, 1)
		}
	}
}

func runOtherTopics(s *scene) {
	other := s.topic + "-2"
	s.createTopic(other, 1)
	m := s.member(nil)
	for _, topics := range [][]string{{s.topic}, {s.topic, other}, {other}} {
		h := m.handler()
		c := m.consumeTopics(context.Background(), h, topics...)
		want := 0
		for _, topic := range topics {
			want += map[string]int{s.topic: 2, other: 1}[topic]
		}
		h.waitOpen(want)
		c.end()
	}
}

func runNoTopics(s *scene) {
	m := s.member(nil)
	h := m.handler()
	m.consumeTopics(context.Background(), h).wait()
	s.note("Setup", "called %d times", h.setups.Load())
}

func runTopicTwice(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(nil)
	h := m.handler()
	c := m.consumeTopics(context.Background(), h, s.topic, s.topic)
	h.waitMessages(2)
	s.settle()
	c.end()
}

func runUnknownTopic(s *scene) {
	m := s.member(func(c *sarama.Config) {
		c.Metadata.AllowAutoTopicCreation = false
		c.Metadata.Retry.Backoff = 10 * time.Millisecond
	})
	h := m.handler()
	m.consumeTopics(context.Background(), h, s.topic+"-none").wait()
	m.consumeTopics(context.Background(), h, s.topic, s.topic+"-none").wait()
	s.note("Setup", "called %d times", h.setups.Load())
}

func runInvalidTopic(s *scene) {
	m := s.member(func(c *sarama.Config) { c.Metadata.Retry.Backoff = 10 * time.Millisecond })
	m.consumeTopics(context.Background(), m.handler(), "no topic").wait()
}

func runValues(s *scene) {
	type key struct{}
	m := s.member(nil)
	h := m.handler()
	value := func(sess sarama.ConsumerGroupSession) error {
		s.note("value", "%v", sess.Context().Value(key{}))
		return nil
	}
	h.onSetup, h.onCleanup = value, value
	c := m.consumeTopics(context.WithValue(context.Background(), key{}, "given"), h, s.topic)
	h.waitOpen(2)
	c.end()
}
