package scenarios

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// handlerCases are about handlers that return early, fail, panic or do not return.
func handlerCases() []Case {
	return []Case{
		{Name: "ConsumeClaim returns nil", run: returns(nil)},
		{Name: "ConsumeClaim returns an error", run: returns(errHandler)},
		{Name: "ConsumeClaim calls Goexit", Process: true, run: runGoexit},
		{Name: "ConsumeClaim fails at once, five times", run: runFailsAtOnce},
		{Name: "ConsumeClaim returns an error after the end of the context", run: returnsLate(func(sarama.ConsumerGroupSession) error { return errHandler }, false)},
		{Name: "ConsumeClaim returns the error of the context", run: returnsLate(func(s sarama.ConsumerGroupSession) error { return s.Context().Err() }, false)},
		{Name: "ConsumeClaim returns an error during Close", run: returnsLate(func(sarama.ConsumerGroupSession) error { return errHandler }, true)},
		{Name: "ConsumeClaim panics", Process: true, run: panics("ConsumeClaim")},
		{Name: "Setup panics", Process: true, run: panics("Setup")},
		{Name: "Cleanup panics", Process: true, run: panics("Cleanup")},
		{Name: "Setup returns an error", run: runSetupFails},
		{Name: "Cleanup returns an error", run: cleanupFails(func(sarama.ConsumerGroupSession) error { return errHandler })},
		{Name: "Cleanup returns the error of the context", run: cleanupFails(func(s sarama.ConsumerGroupSession) error { return s.Context().Err() })},
		{Name: "ConsumeClaim ignores the end", run: runIgnoresEnd},
		{Name: "ConsumeClaim is slow to return", run: runSlowToReturn},
		{Name: "Setup does not return", run: stuck("Setup")},
		{Name: "Cleanup does not return", run: stuck("Cleanup")},
	}
}

// returns is a case in which the ConsumeClaim of partition 0 returns err while its Messages is open.
func returns(err error) func(*scene) {
	return func(s *scene) {
		s.produce(1, 0, 1)
		m := s.member(nil)
		goOn := make(chan struct{})
		h := m.handler()
		h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			if c.Partition() == 1 {
				return h.markAll(sess, c)
			}
			sess.MarkMessage(<-c.Messages(), "")
			<-goOn
			return err
		}
		c := m.consume(h)
		h.waitOpen(2)
		h.waitMessages(1)
		close(goOn)
		s.until("Consume returns", c.returned)
		s.note("Consume", "has returned by itself: %t", c.returned())
		s.note("the other partition", "is still open: %t", h.opens() > 0)
		s.note("stored", "%s, %s", s.stock(0), s.stock(1))
		c.end()
		h = m.handler()
		c = m.consume(h)
		h.waitOpen(2)
		c.end()
	}
}

func runGoexit(s *scene) {
	m := s.member(nil)
	goOn := make(chan struct{})
	h := m.handler()
	h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if c.Partition() == 1 {
			return h.markAll(sess, c)
		}
		<-goOn
		runtime.Goexit()
		return nil
	}
	c := m.consume(h)
	h.waitOpen(2)
	close(goOn)
	s.until("Consume returns", c.returned)
	s.note("Consume", "has returned by itself: %t", c.returned())
	c.end()
}

func runFailsAtOnce(s *scene) {
	m := s.member(nil)
	var last time.Time
	soon := false
	for i := 0; i < 5 || !soon && !s.variant.isOurs(); i++ {
		m.mute = i >= 5 // sarama's were all slow by chance
		h := m.quiet()
		both := make(chan struct{})
		begins := sync.OnceFunc(func() { close(both) })
		h.onSetup = func(sarama.ConsumerGroupSession) error {
			soon = soon || time.Since(last) < 900*time.Millisecond
			last = time.Now()
			return nil
		}
		h.onClaim = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error {
			if h.begun.Load() >= 2 {
				begins()
			}
			<-both // or else only one is called, and it is chance which
			return errHandler
		}
		m.consume(h).wait()
	}
	s.note("five sessions", "one begins less than a second after the one before: %t", soon)
}

// returnsLate is a case in which both ConsumeClaims return an error when their Messages has been closed.
func returnsLate(err func(sarama.ConsumerGroupSession) error, byClose bool) func(*scene) {
	return func(s *scene) {
		m := s.member(nil)
		h := m.handler()
		h.isClosed = byClose
		h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			_ = h.markAll(sess, c)
			return err(sess)
		}
		c := m.consume(h)
		h.waitOpen(2)
		if byClose {
			m.close()
		}
		c.end()
	}
}

// panics is a case in which a method of the handler panics, ConsumeClaim for partition 0 alone.
func panics(method string) func(*scene) {
	return func(s *scene) {
		m := s.member(nil)
		h := m.quiet()
		panicsIn := func(here string) func(sarama.ConsumerGroupSession) error {
			return func(sarama.ConsumerGroupSession) error {
				if here == method {
					panic("the handler's panic")
				}
				return nil
			}
		}
		h.onSetup, h.onCleanup = panicsIn("Setup"), panicsIn("Cleanup")
		h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			if c.Partition() == 0 {
				_ = panicsIn("ConsumeClaim")(sess)
			}
			return h.markAll(sess, c)
		}
		c := m.consume(h)
		switch method {
		case "Setup":
			c.wait()
		case "ConsumeClaim":
			h.waitBegun(1)
			c.wait()
		default:
			h.waitOpen(2)
		}
		c.end()
		m.close()
		s.note("process", "goes on")
	}
}

func runSetupFails(s *scene) {
	m := s.member(nil)
	h := m.handler()
	h.onSetup = func(sarama.ConsumerGroupSession) error { return errHandler }
	c := m.consume(h)
	c.wait()
	s.note("ConsumeClaim", "called %d times", h.begun.Load())
	s.note("Cleanup", "called %d times", h.cleanups.Load())
	h = m.handler()
	c = m.consume(h)
	h.waitOpen(2)
	c.end()
}

// cleanupFails is a case in which Cleanup returns an error.
func cleanupFails(cleanup func(sarama.ConsumerGroupSession) error) func(*scene) {
	return func(s *scene) {
		s.produce(1, 0, 1)
		m := s.member(nil)
		h := m.handler()
		h.onCleanup = cleanup
		c := m.consume(h)
		h.waitMessages(2)
		c.end()
		s.note("stored", "%s, %s", s.stock(0), s.stock(1))
	}
}

// rebalanceIn makes the member wait that long for handlers, and ours three times that to leave. Two seconds are enough on a busy
// machine for a handler that returns at once. Where a case waits for what never happens it must be less.
func rebalanceIn(d time.Duration) func(*sarama.Config) {
	return func(c *sarama.Config) { c.Consumer.Group.Rebalance.Timeout = d }
}

func runIgnoresEnd(s *scene) {
	m := s.member(rebalanceIn(2 * time.Second))
	goOn := make(chan struct{})
	h := m.handler()
	h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		if c.Partition() == 0 {
			<-goOn
		}
		return h.markAll(sess, c)
	}
	c := m.consume(h)
	h.waitOpen(2)
	c.stop()
	s.untilOn("Consume returns", c.returned, OursEager, OursIncremental)
	s.note("Consume", "has returned while a ConsumeClaim runs: %t", c.returned())
	s.note("Cleanup", "called while a ConsumeClaim runs: %t", h.cleanups.Load() > 0)
	close(goOn)
	c.wait()
	h.waitOpen(0)
	s.settle()
	s.note("Cleanup", "called %d times", h.cleanups.Load())
}

func runSlowToReturn(s *scene) {
	s.produce(1, 0, 1)
	m := s.member(func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Interval = time.Hour })
	goOn := make(chan struct{})
	h := m.handler()
	h.onClaim = func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		_ = h.markAll(sess, c)
		if c.Partition() == 0 {
			<-goOn
		}
		return nil
	}
	h.onCleanup = func(sarama.ConsumerGroupSession) error {
		s.note("stored in Cleanup", "%s, %s", s.stock(0), s.stock(1))
		return nil
	}
	c := m.consume(h)
	h.waitMessages(2)
	c.stop()
	h.waitOpen(1)
	s.untilOn("the mark of the other is stored", func() bool { return s.stock(1) == "1" }, OursIncremental)
	s.note("stored while the other ConsumeClaim runs", "%s, %s", s.stock(0), s.stock(1))
	s.note("Cleanup", "called while a ConsumeClaim runs: %t", h.cleanups.Load() > 0)
	close(goOn)
	c.wait()
	s.note("stored", "%s, %s", s.stock(0), s.stock(1))
}

// stuck is a case in which Setup or Cleanup does not return for a while.
func stuck(method string) func(*scene) {
	return func(s *scene) {
		limit, on := time.Second, []Variant(nil)
		if method == "Cleanup" {
			limit, on = 4*time.Second, []Variant{OursEager, OursIncremental}
		}
		m := s.member(rebalanceIn(limit))
		goOn := make(chan struct{})
		h := m.handler()
		block := func(sarama.ConsumerGroupSession) error {
			<-goOn
			h.isQuiet = h.isQuiet || method == "Setup" // then the cause of sarama's context in Cleanup is chance
			return nil
		}
		if method == "Setup" {
			h.onSetup = block
		} else {
			h.onCleanup = block
		}
		c := m.consume(h)
		if method == "Cleanup" {
			h.waitOpen(2)
			c.stop()
		}
		if s.variant.isOurs() {
			m.waitReported() // after six seconds
		}
		s.untilOn("Consume returns", c.returned, on...)
		s.note("Consume", fmt.Sprintf("has returned while %s runs: %%t", method), c.returned())
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			m.close()
		}()
		hasClosed := func() bool {
			select {
			case <-closed:
				return true
			default:
				return false
			}
		}
		s.untilOn("Close returns", hasClosed, OursEager, OursIncremental)
		s.note("Close", "has returned while %s runs: %t", method, hasClosed())
		close(goOn)
		<-closed
		c.end()
	}
}
