package scenarios

import (
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// offsetCases are about what is stored in Kafka, and when.
func offsetCases() []Case {
	return []Case{
		{Name: "marks of all kinds", run: runMarks},
		{Name: "nothing is marked", run: runNoMarks},
		{Name: "metadata of a mark", run: runMetadata},
		{Name: "metadata that is too large", Real: true, run: runLargeMetadata},
		{Name: "autocommit is off", run: runAutocommitOff},
		{Name: "autocommit is on", run: runAutocommitOn},
		{Name: "marks after Messages was closed", run: runMarkAtEnd},
		{Name: "marks in Cleanup", run: markInCleanup(false)},
		{Name: "marks in Cleanup, a ConsumeClaim has returned", run: markInCleanup(true)},
		{Name: "Commit in Cleanup, autocommit is off", run: commitInCleanup(false)},
		{Name: "Commit in Cleanup, autocommit is off, a ConsumeClaim has returned", run: commitInCleanup(true)},
		{Name: "a worker marks until Cleanup", run: workerUntilCleanup(false)},
		{Name: "a worker marks until Cleanup, a ConsumeClaim has returned", run: workerUntilCleanup(true)},
		{Name: "marks after Consume has returned", run: runLateMarks},
		{Name: "marks in Setup", run: runMarkInSetup},
		{Name: "marks in Setup, autocommit is off", run: markInSetupOff(false)},
		{Name: "marks and Commit in Setup, autocommit is off", run: markInSetupOff(true)},
		{Name: "resets in Setup", run: resetInSetup(2)},
		{Name: "resets to OffsetOldest in Setup", run: resetInSetup(sarama.OffsetOldest)},
		{Name: "resets in ConsumeClaim", run: runReset},
		{Name: "the offset in Kafka is before the first message", run: outOfRange(3, true)},
		{Name: "the offset in Kafka is behind the last message", run: outOfRange(100, true)},
		{Name: "the offset in Kafka is out of range and must not be reset", run: outOfRange(3, false)},
		{Name: "Offsets.Initial is newest", run: runNewest},
	}
}

func runMarks(s *scene) {
	s.produce(10, 0)
	s.commit(2)
	m := s.member(noAutocommit)
	h := m.handler()
	h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if c.Partition() == 0 {
			now := func(what string, act func()) {
				act()
				sess.Commit()
				s.note("stored after", "%s: %s", what, s.stock(0))
			}
			msg := <-c.Messages()
			now("nothing", func() {})
			now("MarkMessage of 2", func() { sess.MarkMessage(msg, "") })
			now("MarkOffset 6", func() { sess.MarkOffset(s.topic, 0, 6, "") })
			now("MarkOffset 4", func() { sess.MarkOffset(s.topic, 0, 4, "") })
			now("ResetOffset 5", func() { sess.ResetOffset(s.topic, 0, 5, "") })
			now("ResetOffset 7", func() { sess.ResetOffset(s.topic, 0, 7, "") })
			now("MarkOffset 100, which the partition does not have", func() { sess.MarkOffset(s.topic, 0, 100, "") })
			now("ResetOffset 1", func() { sess.ResetOffset(s.topic, 0, 1, "") })
			now("MarkOffset of a partition that is not claimed", func() { sess.MarkOffset(s.topic, 17, 1, "") })
			s.note("HighWaterMarkOffset", "%d", c.HighWaterMarkOffset())
			h.messages.Add(1)
		}
		for range c.Messages() {
		}
		return nil
	}
	c := m.consume(h)
	h.waitMessages(1)
	c.end()
	s.note("stored after", "Consume: %s", s.stock(0))
}

func runNoMarks(s *scene) {
	s.produce(1, 0)
	m := s.member(nil)
	h := m.claiming(func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		for range c.Messages() {
		}
		return nil
	})
	c := m.consume(h)
	h.waitOpen(2)
	s.untilOn("the start is stored", func() bool { return s.stock(0) == "0" && s.stock(1) == "0" }, OursEager, OursIncremental)
	s.note("stored without a mark", "%s, %s", s.stock(0), s.stock(1))
	c.end()
	s.note("stored without a mark", "%s, %s", s.stock(0), s.stock(1))
}

// marking returns a handler that marks messages with metadata.
func (m *member) marking(metadata string) *handler {
	h := m.handler()
	h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		for m := range c.Messages() {
			sess.MarkMessage(m, metadata)
			h.messages.Add(1)
		}
		return nil
	}
	return h
}

func runMetadata(s *scene) {
	s.produce(1, 0)
	m := s.member(nil)
	h := m.marking("the handler's text")
	c := m.consume(h)
	h.waitMessages(1)
	s.until("the mark is stored", func() bool { offset, _ := s.stored(0); return offset == 1 })
	c.end()
	_, metadata := s.stored(0)
	switch {
	case metadata == "the handler's text":
		s.note("metadata", "what was given")
	case strings.HasSuffix(metadata, ";the handler's text"):
		s.note("metadata", "a text of the library's, then what was given")
	default:
		s.note("metadata", "%q", metadata)
	}
}

func runLargeMetadata(s *scene) {
	s.produce(1, 0)
	m := s.member(func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Interval = time.Hour })
	h := m.marking(strings.Repeat("x", 5000))
	c := m.consume(h)
	h.waitMessages(1)
	h.sess().Commit()
	m.waitReported()
	s.note("stored", "is the mark: %t", s.stock(0) == "1")
	c.end()
}

func runAutocommitOff(s *scene) {
	s.produce(2, 0)
	s.commit(0)
	m := s.member(noAutocommit)
	goOn := make(chan struct{})
	h := m.claiming(func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if c.Partition() == 0 {
			sess.MarkMessage(<-c.Messages(), "")
			s.settle()
			s.note("stored", "before Commit: %s", s.stock(0))
			sess.Commit()
			s.note("stored", "after Commit: %s", s.stock(0))
			sess.MarkMessage(<-c.Messages(), "")
			close(goOn)
		}
		for range c.Messages() {
		}
		return nil
	})
	c := m.consume(h)
	h.waitBegun(2)
	<-goOn
	c.end()
	s.note("stored", "at the end: %s", s.stock(0))
}

func runAutocommitOn(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(nil)
	h := m.handler()
	c := m.consume(h)
	h.waitMessages(2)
	s.until("the marks are stored", func() bool { return s.stock(0) == "1" && s.stock(1) == "1" })
	s.note("stored", "while it runs: %s, %s", s.stock(0), s.stock(1))
	c.end()
}

func runMarkAtEnd(s *scene) {
	s.produce(1, 0)
	m := s.member(nil)
	h := m.handler()
	h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		var last *sarama.ConsumerMessage
		for m := range c.Messages() {
			last = m
			h.messages.Add(1)
		}
		if last != nil {
			sess.MarkMessage(last, "")
		}
		return nil
	}
	c := m.consume(h)
	h.waitMessages(1)
	c.end()
	s.note("stored", "%s", s.stock(0))
}

// returning is a ConsumeClaim that marks n messages of partition 0 and returns then, and waits for the end in others.
func returning(h *handler, n int, each func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage)) func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error {
	return func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		for range n {
			if c.Partition() == 0 {
				each(sess, <-c.Messages())
				h.messages.Add(1)
			}
		}
		if c.Partition() != 0 {
			<-sess.Context().Done()
			return nil
		}
		h.waitBegun(2)
		return nil
	}
}

// inCleanup is a case in which Cleanup does the given after three messages were marked. The session ends with the call, or, when
// alone, with a ConsumeClaim that has returned.
func inCleanup(alone bool, change func(*sarama.Config), cleanup func(*scene, sarama.ConsumerGroupSession)) func(*scene) {
	return func(s *scene) {
		s.produce(3, 0)
		m := s.member(change)
		h := m.handler()
		if alone {
			h.onClaim = returning(h, 3, func(sess sarama.ConsumerGroupSession, msg *sarama.ConsumerMessage) { sess.MarkMessage(msg, "") })
		}
		h.onCleanup = func(sess sarama.ConsumerGroupSession) error {
			cleanup(s, sess)
			return nil
		}
		c := m.consume(h)
		h.waitMessages(3)
		c.over(alone)
		s.note("stored", "%s", s.stock(0))
	}
}

func markInCleanup(alone bool) func(*scene) {
	return inCleanup(alone, nil, func(s *scene, sess sarama.ConsumerGroupSession) {
		sess.ResetOffset(s.topic, 0, 2, "")
		sess.Commit()
		s.note("stored", "after ResetOffset and Commit in Cleanup: %s", s.stock(0))
		sess.MarkOffset(s.topic, 0, 3, "")
	})
}

// commitInCleanup is a case in which only Cleanup commits what was marked.
func commitInCleanup(alone bool) func(*scene) {
	return inCleanup(alone, noAutocommit, func(s *scene, sess sarama.ConsumerGroupSession) {
		sess.Commit()
		s.note("stored", "after Commit in Cleanup: %s", s.stock(0))
	})
}

func noAutocommit(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = false }

// workerUntilCleanup is a case in which a message is marked by another goroutine, when ConsumeClaim has returned and before
// Cleanup does.
func workerUntilCleanup(alone bool) func(*scene) {
	return func(s *scene) {
		s.produce(1, 0)
		m := s.member(nil)
		h := m.handler()
		work := make(chan *sarama.ConsumerMessage, 1)
		claim := returning(h, 1, func(_ sarama.ConsumerGroupSession, msg *sarama.ConsumerMessage) { work <- msg })
		h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			defer func() {
				if !alone {
					<-sess.Context().Done()
				}
			}()
			return claim(sess, c)
		}
		h.onCleanup = func(sess sarama.ConsumerGroupSession) error {
			worked := make(chan struct{})
			go func() {
				defer close(worked)
				sess.MarkMessage(<-work, "")
			}()
			<-worked
			return nil
		}
		c := m.consume(h)
		h.waitMessages(1)
		c.over(alone)
		s.note("stored", "%s", s.stock(0))
	}
}

func runLateMarks(s *scene) {
	s.produce(3, 0)
	m := s.member(nil)
	h := m.handler()
	h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if c.Partition() == 0 {
			sess.MarkMessage(<-c.Messages(), "")
			h.messages.Add(1)
		}
		<-sess.Context().Done()
		return nil
	}
	c := m.consume(h)
	h.waitMessages(1)
	h.waitOpen(2)
	c.end()
	h.sess().MarkOffset(s.topic, 0, 2, "")
	h.sess().Commit()
	s.settle()
	s.note("stored", "%s", s.stock(0))
	h2 := m.handler()
	c = m.consume(h2)
	h2.waitMessages(2)
	s.until("the marks are stored", func() bool { return s.stock(0) == "3" })
	h.sess().ResetOffset(s.topic, 0, 0, "")
	h.sess().Commit()
	s.settle()
	s.note("stored", "in the next session: %s", s.stock(0))
	c.end()
}

func runMarkInSetup(s *scene) {
	s.produce(5, 0)
	s.commit(2)
	m := s.member(nil)
	h := m.handler()
	h.onSetup = func(sess sarama.ConsumerGroupSession) error {
		sess.MarkOffset(s.topic, 0, 1, "") // lower than what is stored
		sess.MarkOffset(s.topic, 0, 4, "")
		sess.MarkOffset(s.topic, 0, 3, "")
		return nil
	}
	c := m.consume(h)
	h.waitMessages(1)
	s.settle()
	c.end()
	s.note("stored", "%s", s.stock(0))
}

// markInSetupOff is a case in which Setup marks partition 0, commits that or not, and nothing else does.
func markInSetupOff(commit bool) func(*scene) {
	return func(s *scene) {
		s.produce(5, 0)
		s.commit(2)
		m := s.member(noAutocommit)
		h := m.handler()
		h.onSetup = func(sess sarama.ConsumerGroupSession) error {
			sess.MarkOffset(s.topic, 0, 4, "")
			if commit {
				sess.Commit()
			}
			s.note("stored in Setup", "%s", s.stock(0))
			return nil
		}
		h.onClaim = func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			for range c.Messages() {
				h.messages.Add(1)
			}
			return nil
		}
		c := m.consume(h)
		h.waitOpen(2)
		s.settleUntil(func() bool { return h.messages.Load() >= 1 })
		c.end()
		s.note("stored", "%s", s.stock(0))
	}
}

// resetInSetup is a case in which Setup resets partition 0 from 4 to offset.
func resetInSetup(offset int64) func(*scene) {
	return func(s *scene) {
		s.produce(5, 0)
		s.commit(4)
		m := s.member(nil)
		h := m.handler()
		h.onSetup = func(sess sarama.ConsumerGroupSession) error {
			sess.ResetOffset(s.topic, 0, offset, "")
			return nil
		}
		h.onClaim = func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			for m := range c.Messages() {
				h.noteMessage(c, m)
				h.messages.Add(1)
			}
			return nil
		}
		c := m.consume(h)
		h.waitMessages(int32(5 - max(offset, 0)))
		s.settle()
		c.end()
		s.note("stored", "%s", s.stock(0))
	}
}

func runReset(s *scene) {
	s.produce(5, 0)
	m := s.member(nil)
	for range 2 {
		h := m.handler()
		h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			for m := range c.Messages() {
				h.noteMessage(c, m)
				sess.MarkMessage(m, "")
				if m.Offset == 4 {
					sess.ResetOffset(s.topic, 0, 3, "")
					h.messages.Add(1)
				}
			}
			return nil
		}
		c := m.consume(h)
		h.waitMessages(1)
		h.waitOpen(2)
		c.end()
		s.note("stored", "%s", s.stock(0))
	}
}

// outOfRange is a case in which Kafka has the offsets 5 to 9 and the group is at another.
func outOfRange(offset int64, reset bool) func(*scene) {
	return func(s *scene) {
		s.produce(10, 0)
		s.deleteRecords(0, 5)
		s.commit(offset)
		m := s.member(func(c *sarama.Config) { c.Consumer.Group.ResetInvalidOffsets = reset })
		h := m.handler()
		h.isQuiet = !reset // the other partition may be open by then, or not
		c := m.consume(h)
		if reset {
			h.waitOpen(2)
			h.waitMessages(5)
			s.settle()
		} else {
			s.untilOn("Consume returns", c.returned, SaramaEager, SaramaCooperative)
			m.waitReported()
		}
		s.note("Consume", "has returned by itself: %t", c.returned())
		s.note("partition 0", "ConsumeClaim is called: %t", h.messages.Load() > 0)
		c.end()
		s.note("stored", "%s", s.stock(0))
	}
}

func runNewest(s *scene) {
	s.produce(2, 0)
	m := s.member(func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest })
	h := m.handler()
	c := m.consume(h)
	h.waitOpen(2)
	s.produce(1, 0)
	h.waitMessages(1)
	s.note("messages", "the old ones come: %t", h.messages.Load() > 1)
	c.end()
	s.note("stored", "%s", fmt.Sprint(s.stock(0)))
}
