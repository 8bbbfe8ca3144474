package programs

import (
	"context"

	"github.com/IBM/sarama"
)

// Subscriber sends the messages of all partitions out on one channel, and waits for each until it is acknowledged, or sends it
// again. It marks what is acknowledged. Every seventh message is refused the first time.
func Subscriber(ctx context.Context, h Host) error {
	s := &subscriber{ctx: ctx, h: h, out: make(chan *delivery)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := range s.out {
			if d.message.Offset%7 == 0 && !d.again {
				d.answer <- false
				continue
			}
			h.Process(d.message)
			d.answer <- true
		}
	}()
	err := consume(ctx, h, s, func() {})
	close(s.out)
	<-done
	return err
}

type subscriber struct {
	ctx context.Context //nolint:containedctx // the subscriber's life, which its handlers watch
	h   Host
	out chan *delivery
}

// delivery is a message on its way.
type delivery struct {
	message *sarama.ConsumerMessage
	again   bool
	answer  chan bool // true for done; has room for one
}

func (s *subscriber) Setup(session sarama.ConsumerGroupSession) error {
	s.h.Setup(session)
	return nil
}

func (*subscriber) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (s *subscriber) ConsumeClaim(session sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		if s.deliver(m) && session.Context().Err() == nil {
			session.MarkMessage(m, "")
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-session.Context().Done():
			return nil
		default:
		}
	}
	return nil
}

// deliver returns true when the message was acknowledged, and false when the subscriber ended before.
func (s *subscriber) deliver(m *sarama.ConsumerMessage) bool {
	for again := false; ; again = true {
		d := &delivery{message: m, again: again, answer: make(chan bool, 1)}
		select {
		case s.out <- d:
		case <-s.ctx.Done():
			return false
		}
		select {
		case done := <-d.answer:
			if done {
				return true
			}
		case <-s.ctx.Done():
			return false
		}
	}
}
