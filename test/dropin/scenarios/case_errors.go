package scenarios

import (
	"github.com/IBM/sarama"
)

// errorCases are about the channel of errors.
func errorCases() []Case {
	return []Case{
		{Name: "more errors than the channel holds", run: runErrorsOverflow},
		{Name: "errors that nobody reads", run: runErrorsUnread},
		{Name: "Return.Errors is false", run: runNoErrors},
	}
}

// failing is a handler of which the ConsumeClaim of partition 0 returns an error of its own at the end.
func (m *member) failing(text string) *handler {
	return m.claiming(func(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		<-sess.Context().Done()
		if c.Partition() == 0 {
			return ownError(text)
		}
		return nil
	})
}

func runErrorsOverflow(s *scene) {
	m := s.silent(first, func(c *sarama.Config) { c.ChannelBufferSize = 2 })
	for _, text := range []string{"one", "two", "three", "four"} {
		h := m.failing(text)
		c := m.consume(h)
		h.waitOpen(2)
		c.end()
	}
	m.readErrors()
}

func runErrorsUnread(s *scene) {
	m := s.silent(first, nil)
	h := m.failing("one")
	c := m.consume(h)
	h.waitOpen(2)
	c.end()
	m.close()
	left := 0
	for range m.group.Errors() {
		left++
	}
	s.note("Errors", "%d left after Close", left)
}

func runNoErrors(s *scene) {
	m := s.member(func(c *sarama.Config) { c.Consumer.Return.Errors = false })
	h := m.failing("one")
	c := m.consume(h)
	h.waitOpen(2)
	c.end()
}
