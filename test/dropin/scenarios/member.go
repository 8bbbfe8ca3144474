package scenarios

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// member is one member of the group of a scenario.
type member struct {
	s     *scene
	name  string
	mute  bool // what Consume returns is not noted
	group sarama.ConsumerGroup
	once  sync.Once
	read  sync.WaitGroup // who reads Errors

	reads      bool         // somebody reads Errors
	reported   atomic.Int32 // errors that were read
	generation atomic.Int32 // the last one that was noted; 0 for none
}

// member makes the first member, which does not consume yet, and whose Errors are noted.
func (s *scene) member(change func(*sarama.Config)) *member {
	s.t.Helper()
	m := s.silent(first, change)
	m.readErrors()
	return m
}

// readErrors begins to note what comes to Errors.
func (m *member) readErrors() {
	m.reads = true
	m.read.Go(func() {
		for err := range m.group.Errors() {
			m.note("Errors", "%s", m.s.describe(err))
			m.reported.Add(1)
		}
	})
}

// waitReported waits until an error has been read.
func (m *member) waitReported() {
	m.s.t.Helper()
	m.s.until(m.name+" has read an error", func() bool { return m.reported.Load() > 0 })
}

// muted makes a member of which neither Errors nor what Consume returns is noted.
func (s *scene) muted(name string, change func(*sarama.Config)) *member {
	s.t.Helper()
	m := s.silent(name, change)
	m.mute, m.reads = true, true
	m.read.Go(func() {
		for err := range m.group.Errors() {
			s.t.Logf("reported: %v", err)
			m.reported.Add(1)
		}
	})
	return m
}

// silent makes a member whose Errors nobody reads.
func (s *scene) silent(name string, change func(*sarama.Config)) *member {
	s.t.Helper()
	config := s.config()
	if change != nil {
		change(config)
	}
	m := &member{s: s, name: name}
	if err := m.make(s.Brokers, config); err != nil {
		s.t.Fatal(err)
	}
	s.members = append(s.members, m)
	return m
}

// make calls the constructor.
func (m *member) make(brokers []string, config *sarama.Config) (err error) {
	s := m.s
	if !s.variant.isOurs() {
		m.group, err = sarama.NewConsumerGroup(brokers, s.group, config)
		return err
	}
	m.group, err = consumer.NewGroup(s.ZooKeeper, brokers, s.group, consumer.Options{
		Name: m.name, Config: config, StopTimeout: 3 * config.Consumer.Group.Rebalance.Timeout,
		Session: session.Options{Timeout: s.SessionTimeout, MinSessionTimeout: s.SessionTimeout / 2},
	})
	return err
}

// note notes an observation in a lane of the member.
func (m *member) note(lane, format string, args ...any) {
	if m.name != first {
		lane = m.name + ": " + lane
	}
	m.s.note(lane, format, args...)
}

// first is the name of the member whose lanes need no name.
const first = "first"

// close ends everything of the member. Before that it waits until all errors have been read: Close of sarama's group returns the
// last one that nobody was quick enough to read.
func (m *member) close() {
	m.once.Do(func() {
		m.s.settleUntil(func() bool { return !m.reads || len(m.group.Errors()) == 0 })
		m.note("Close", "%s", m.s.describe(m.group.Close()))
		m.read.Wait()
	})
}

// call is one call of Consume.
type call struct {
	m    *member
	stop context.CancelFunc
	done chan struct{} // closed when it has returned
}

// consume calls Consume on a goroutine of its own, and notes what it returns.
func (m *member) consume(h *handler) *call {
	return m.consumeTopics(context.Background(), h, m.s.topic)
}

// consumeTopics is consume with a context and topics of the caller's.
func (m *member) consumeTopics(ctx context.Context, h *handler, topics ...string) *call {
	ctx, stop := context.WithCancel(ctx)
	return m.consumeUnder(ctx, stop, h, topics...)
}

// consumeUnder is consumeTopics with a context as it is, which stop ends.
func (m *member) consumeUnder(ctx context.Context, stop context.CancelFunc, h *handler, topics ...string) *call {
	c := &call{m: m, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		err := m.group.Consume(ctx, topics, h)
		if !m.mute {
			m.note("Consume", "%s", m.s.describe(err))
		}
	}()
	return c
}

// returned says whether Consume has returned.
func (c *call) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait waits until Consume has returned.
func (c *call) wait() {
	c.m.s.t.Helper()
	c.m.s.until("Consume returns", c.returned)
	c.stop()
}

// over waits until Consume has returned: by itself, because a ConsumeClaim has, or with the end of its context.
func (c *call) over(byItself bool) {
	c.m.s.t.Helper()
	if byItself {
		c.wait()
	} else {
		c.end()
	}
}

// end ends the context of Consume and waits until Consume has returned.
func (c *call) end() {
	c.m.s.t.Helper()
	c.stop()
	c.wait()
}
