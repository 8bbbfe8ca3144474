package scenarios

import (
	"sync/atomic"

	"github.com/IBM/sarama"
)

// messageCases are about the channel of messages.
func messageCases() []Case {
	return []Case{
		{Name: "messages are left in the channel at the end", run: runLeftInChannel},
		{Name: "the channel is empty at the end", run: runEmptyChannel},
		{Name: "Pause and Resume", run: runPause},
		{Name: "PauseAll and ResumeAll", run: runPauseAll},
		{Name: "Pause before Consume", run: runPauseBefore},
		{Name: "Pause lasts until the next Consume", run: runPauseLasts},
		{Name: "interceptors", run: runInterceptors},
		{Name: "an interceptor panics", run: runInterceptorPanics},
		{Name: "InitialOffset and HighWaterMarkOffset", run: runOffsetsOfClaim},
	}
}

func runLeftInChannel(s *scene) {
	s.produce(5, 0)
	m := s.member(nil)
	h := m.claiming(func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		<-sess.Context().Done()
		if c.Partition() == 0 {
			s.settleUntil(func() bool { return len(c.Messages()) == 0 })
			left := 0
			for range c.Messages() {
				left++
			}
			s.note("Messages", "left after the end: %t", left > 0)
		}
		return nil
	})
	c := m.consume(h)
	h.waitOpen(2)
	s.until("all messages are in the channel", func() bool { return len(h.claim(0).Messages()) == 5 })
	c.end()
}

func runEmptyChannel(s *scene) {
	m := s.member(nil)
	h := m.claiming(func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		_, ok := <-c.Messages()
		s.note("Messages", "open after the end: %t, context %s", ok, s.life(sess.Context()))
		return nil
	})
	c := m.consume(h)
	h.waitOpen(2)
	c.end()
}

func runPause(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(nil)
	h := m.handler()
	c := m.consume(h)
	h.waitMessages(2)
	m.group.Pause(map[string][]int32{s.topic: {0}, "unknown": {3}})
	s.settle()
	s.produce(1, 0, 1)
	h.waitMessages(3)
	s.settle()
	s.note("while partition 0 is paused", "%d messages", h.messages.Load())
	m.group.Resume(map[string][]int32{s.topic: {0}, "unknown": {3}})
	h.waitMessages(4)
	c.end()
}

func runPauseAll(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(nil)
	h := m.handler()
	c := m.consume(h)
	h.waitMessages(2)
	m.group.PauseAll()
	s.settle()
	s.produce(1, 0, 1)
	s.settle()
	s.note("while all are paused", "%d messages", h.messages.Load())
	m.group.ResumeAll()
	h.waitMessages(4)
	c.end()
}

func runPauseBefore(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(nil)
	m.group.Pause(map[string][]int32{s.topic: {0}})
	m.group.PauseAll()
	h := m.handler()
	h.onSetup = func(sarama.ConsumerGroupSession) error {
		m.group.Pause(map[string][]int32{s.topic: {0}})
		m.group.PauseAll()
		return nil
	}
	c := m.consume(h)
	h.waitMessages(2)
	s.note("paused before the partitions were open", "%d messages", h.messages.Load())
	c.end()
}

func runPauseLasts(s *scene) {
	m := s.member(nil)
	h := m.handler()
	c := m.consume(h)
	h.waitOpen(2)
	s.settle()
	m.group.PauseAll()
	c.end()
	s.produce(1, 0, 1)
	h = m.handler()
	c = m.consume(h)
	h.waitOpen(2)
	s.settle()
	s.note("in the next session", "%d messages", h.messages.Load())
	c.end()
}

// interceptor counts messages and changes them.
type interceptor struct {
	seen   atomic.Int32
	panics bool
}

// OnConsume implements sarama.ConsumerInterceptor.
func (i *interceptor) OnConsume(m *sarama.ConsumerMessage) {
	i.seen.Add(1)
	if i.panics {
		panic("the interceptor's panic")
	}
	m.Key = append(m.Key, 'k')
}

func runInterceptors(s *scene) {
	s.produce(10, 0)
	one, two := &interceptor{}, &interceptor{}
	m := s.member(func(c *sarama.Config) {
		c.ChannelBufferSize = 2
		c.Consumer.Interceptors = []sarama.ConsumerInterceptor{one, two}
	})
	goOn := make(chan struct{})
	h := m.claiming(func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if c.Partition() == 0 {
			m := <-c.Messages()
			s.note("key", "%s", m.Key)
			<-goOn
		}
		for range c.Messages() {
		}
		return nil
	})
	c := m.consume(h)
	h.waitOpen(2)
	seen := int32(5)
	if s.variant.isOurs() {
		seen = 4
	}
	s.until("the channel is full", func() bool { return one.seen.Load() >= seen && two.seen.Load() >= seen })
	s.settle()
	s.note("seen while the handler has one message and the channel two", "%d, %d", one.seen.Load(), two.seen.Load())
	close(goOn)
	c.end()
}

func runInterceptorPanics(s *scene) {
	s.produce(2, 0)
	one, two := &interceptor{panics: true}, &interceptor{}
	m := s.member(func(c *sarama.Config) { c.Consumer.Interceptors = []sarama.ConsumerInterceptor{one, two} })
	h := m.handler()
	c := m.consume(h)
	h.waitMessages(2)
	s.note("seen", "%d, %d", one.seen.Load(), two.seen.Load())
	c.end()
}

func runOffsetsOfClaim(s *scene) {
	s.produce(5, 0)
	s.commit(3)
	m := s.member(nil)
	h := m.handler()
	h.onClaim = func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if c.Partition() == 0 {
			s.note("InitialOffset", "%d", c.InitialOffset())
			<-c.Messages()
			s.note("HighWaterMarkOffset", "at the first message: %d", c.HighWaterMarkOffset())
			h.messages.Add(1)
		}
		for range c.Messages() {
		}
		return nil
	}
	c := m.consume(h)
	h.waitMessages(1)
	c.end()
}
