package scenarios

import (
	"time"

	"github.com/IBM/sarama"
)

// memberCases are about groups of two members, and about what happens to the group and its topics.
func memberCases() []Case {
	return []Case{
		{Name: "a second member joins and leaves", run: runSecondMember},
		{Name: "a handler is slow while a second member joins", run: runSlowHandOver},
		{Name: "a handler does not return when its partition is revoked", run: runIgnoresRevocation},
		{Name: "partitions are added", run: partitionsAdded(sarama.OffsetOldest)},
		{Name: "partitions are added, Offsets.Initial is newest", run: partitionsAdded(sarama.OffsetNewest)},
		{Name: "the topic is deleted", Kfake: true, run: runTopicDeleted},
		{Name: "more members than partitions", run: runSpareMember},
		{Name: "the membership is lost", Kfake: true, run: runMembershipLost},
		{Name: "Kafka can not be reached", run: runNoKafka},
		{Name: "Kafka goes away for a while", run: runKafkaAway},
	}
}

// loop calls Consume again and again until the function that it returns is called.
func (m *member) loop(h *handler) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c := m.consume(h)
			select {
			case <-c.done:
				c.stop()
			case <-stop:
				c.stop()
				<-c.done
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// oneEach says whether each of two handlers has one partition open.
func oneEach(h1, h2 *handler) bool { return h1.opens() == 1 && h2.opens() == 1 }

// runSecondMember does not tell partitions apart, since it depends on the strategy which one moves.
func runSecondMember(s *scene) {
	s.produce(1, 0, 1)
	m1, m2 := s.muted(first, nil), s.muted("second", nil)
	h1 := m1.quiet()
	own := make(chan sarama.ConsumerGroupSession, 10)
	h1.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		own <- sess
		return h1.markAll(sess, c)
	}
	end1 := m1.loop(h1)
	h1.waitMessages(2)
	sess, one, other := h1.sess(), <-own, <-own
	h1.onClaim = nil
	s.settle()
	h2 := m2.quiet()
	end2 := m2.loop(h2)
	s.until("each has a partition", func() bool { return oneEach(h1, h2) })
	s.settle()
	s.note("first session after the join", "context %s", s.life(sess.Context()))
	s.note("the two ConsumeClaims after the join", "contexts of their sessions that have ended: %d", ended(one, other))
	s.note("first session after the join", "its Claims: %d", count(sess.Claims()))
	s.note("the first member after the join", "is set up again: %t, ConsumeClaim is called again: %t", h1.setups.Load() > 1, h1.begun.Load() > 2)
	s.note("after the join", "the first has %d claims, the second %d", count(h1.sess().Claims()), count(h2.sess().Claims()))
	s.note("after the join", "messages handled: %d, %d", h1.messages.Load(), h2.messages.Load())
	setups := h1.setups.Load()
	end2()
	m2.close()
	h1.waitOpen(2)
	s.settle()
	s.note("the first member after the leave", "is set up again: %t", h1.setups.Load() > setups)
	s.note("after the leave", "the first has %d claims", count(h1.sess().Claims()))
	s.note("after the leave", "messages handled: %d, %d", h1.messages.Load(), h2.messages.Load())
	end1()
}

// ended returns how many of the sessions' contexts have ended.
func ended(sessions ...sarama.ConsumerGroupSession) (n int) {
	for _, s := range sessions {
		if s.Context().Err() != nil {
			n++
		}
	}
	return n
}

func count(claims map[string][]int32) (n int) {
	for _, ids := range claims {
		n += len(ids)
	}
	return n
}

func runSlowHandOver(s *scene) {
	s.produce(1, 0, 1)
	m1, m2 := s.muted(first, nil), s.muted("second", nil)
	h1 := m1.quiet()
	goOn := make(chan struct{})
	h1.onClaim = func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		for range c.Messages() {
		}
		<-goOn
		return nil
	}
	end1 := m1.loop(h1)
	h1.waitOpen(2)
	h2 := m2.quiet()
	h2.onSetup = func(sess sarama.ConsumerGroupSession) error {
		if h2.setups.Load() == 0 {
			s.note("claims of the second in Setup", "%d", count(sess.Claims()))
		}
		return nil
	}
	end2 := m2.loop(h2)
	s.untilOn("the second member is set up", func() bool { return h2.setups.Load() > 0 }, SaramaCooperative, OursIncremental)
	s.settle()
	s.note("the second member", "is set up while the handler of the first runs: %t", h2.setups.Load() > 0)
	s.note("ConsumeClaim of the second", "is called while the handler of the first runs: %t", h2.begun.Load() > 0)
	close(goOn)
	s.until("each has a partition", func() bool { return oneEach(h1, h2) })
	end2()
	end1()
}

func runIgnoresRevocation(s *scene) {
	m1, m2 := s.muted(first, rebalanceIn(time.Second)), s.muted("second", rebalanceIn(time.Second))
	h1 := m1.quiet()
	goOn := make(chan struct{})
	h1.onClaim = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error {
		<-goOn
		return nil
	}
	c1 := m1.consume(h1)
	h1.waitOpen(2)
	sess := h1.sess()
	h2 := m2.quiet()
	end2 := m2.loop(h2)
	s.untilOn("the session ends", func() bool { return sess.Context().Err() != nil }, SaramaEager, SaramaCooperative)
	s.note("the first session", "has ended: %t", sess.Context().Err() != nil)
	close(goOn)
	c1.end()
	end2()
}

// partitionsAdded is a case in which the topic gets a third partition, with a message.
func partitionsAdded(initial int64) func(*scene) {
	return func(s *scene) {
		m := s.muted(first, func(c *sarama.Config) {
			c.Metadata.RefreshFrequency = 200 * time.Millisecond
			c.Consumer.Offsets.Initial = initial
		})
		h := m.quiet()
		end := m.loop(h)
		h.waitOpen(2)
		sess := h.sess()
		s.growWithMessage()
		h.waitOpen(3)
		on := Variants()
		if initial == sarama.OffsetNewest {
			on = []Variant{OursEager, OursIncremental}
		}
		s.untilOn("the message comes", func() bool { return h.messages.Load() > 0 }, on...)
		s.note("first session", "context %s", s.life(sess.Context()))
		s.note("Setup", "called again: %t", h.setups.Load() > 1)
		s.note("claims", "%s", s.claims(h.sess().Claims()))
		s.note("message in the new partition", "comes: %t", h.messages.Load() > 0)
		end()
	}
}

// growWithMessage gives the topic a third partition and that a message, before a member can ask where the new partition ends.
func (s *scene) growWithMessage() {
	s.t.Helper()
	defer s.kafka.hold()()
	s.grow(3)
	s.produce(1, 2)
}

func runTopicDeleted(s *scene) {
	m := s.muted(first, func(c *sarama.Config) {
		c.Metadata.RefreshFrequency = 200 * time.Millisecond
		c.Metadata.AllowAutoTopicCreation = false
	})
	h := m.quiet()
	c := m.consume(h)
	h.waitOpen(2)
	s.deleteTopic(s.topic)
	s.untilOn("Consume returns", c.returned, SaramaEager)
	if s.variant != SaramaCooperative { // it ends or not, by chance
		s.note("Consume", "has returned by itself: %t", c.returned())
		s.note("session", "has ended: %t", h.sess().Context().Err() != nil)
	}
	c.end()
}

func runSpareMember(s *scene) {
	m1, m2, m3 := s.muted(first, nil), s.muted("second", nil), s.muted("third", nil)
	h1, h2, h3 := m1.quiet(), m2.quiet(), m3.quiet()
	end1 := m1.loop(h1)
	end2 := m2.loop(h2)
	end3 := m3.loop(h3)
	s.until("all have joined", func() bool {
		open, claims := 0, 0
		for _, h := range []*handler{h1, h2, h3} {
			sess := h.sess()
			if sess == nil || sess.Context().Err() != nil || h.opens() == 2 {
				return false
			}
			open, claims = open+h.opens(), claims+count(sess.Claims())
		}
		return open == 2 && claims == 2
	})
	s.settle()
	n := 0
	for _, h := range []*handler{h1, h2, h3} {
		n += count(h.sess().Claims())
		s.note("context of each session", "%s", s.life(h.sess().Context()))
	}
	s.note("claims", "%d in all", n)
	end3()
	end2()
	end1()
}

// runMembershipLost has the member's session ended by its server: Kafka forgets the member, or ZooKeeper the session.
func runMembershipLost(s *scene) {
	s.produce(1, 0, 1)
	m := s.muted(first, nil)
	h := m.quiet()
	c := m.consume(h)
	h.waitMessages(2)
	s.until("the marks are stored", func() bool { return s.stock(0) == "1" && s.stock(1) == "1" }) // or else the commit fails too
	s.settle()
	if s.variant.isOurs() {
		s.Expire(s.group, first)
		s.until("it has joined again, or Consume has returned", func() bool { return c.returned() || h.begun.Load() > 2 && h.opens() == 2 })
		s.settleUntil(func() bool { return m.reported.Load() > 0 })
	} else {
		s.kick()
	}
	s.untilOn("Consume returns", c.returned, SaramaEager, SaramaCooperative)
	s.note("Consume", "has returned: %t", c.returned())
	s.note("session", "has ended: %t", h.sess().Context().Err() != nil)
	s.note("context of the session", "%s", s.life(h.sess().Context()))
	s.note("ConsumeClaim", "called again: %t, %d partitions open", h.begun.Load() > 2, h.opens())
	s.note("Errors", "told of it: %t", m.reported.Load() > 0)
	c.end()
}

func runNoKafka(s *scene) {
	m := &member{s: s, name: first}
	config := s.config()
	config.Metadata.Retry.Max = 0
	err := m.make([]string{"127.0.0.1:1"}, config)
	s.note("constructor", "%s", s.describe(err))
	if err == nil {
		s.members = append(s.members, m)
	}
}

func runKafkaAway(s *scene) {
	s.produce(1, 0, 1)
	m := s.muted(first, func(c *sarama.Config) { c.Metadata.Retry.Backoff = 10 * time.Millisecond })
	h := m.quiet()
	c := m.consume(h)
	h.waitMessages(2)
	s.until("the marks are stored", func() bool { return s.stock(0) == "1" && s.stock(1) == "1" }) // or else ours reports that they are not
	s.settle()
	s.kafka.cut()
	s.untilOn("Consume returns, and an error is read", func() bool { return c.returned() && m.reported.Load() > 0 }, SaramaEager, SaramaCooperative)
	s.note("while Kafka is away", "Consume has returned: %t", c.returned())
	s.note("while Kafka is away", "the session has ended: %t", h.sess().Context().Err() != nil)
	s.note("Errors", "told of it: %t", m.reported.Load() > 0)
	s.kafka.heal()
	c.end()
}
