package programs

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
)

// Example is the program that sarama shows for groups: it waits until it is set up, consumes until it is told to stop, ends the
// context, waits for the loop and closes the group.
func Example(ctx context.Context, h Host) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	e := &example{h: h, ready: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- consume(inner, h, e, func() {}) }()
	select {
	case <-e.ready:
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	<-ctx.Done() // SIGTERM
	cancel()
	return <-ended
}

type example struct {
	h     Host
	once  sync.Once
	ready chan struct{}
}

func (e *example) Setup(s sarama.ConsumerGroupSession) error {
	e.h.Setup(s)
	e.once.Do(func() { close(e.ready) })
	return nil
}

func (*example) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim returns when the channel is closed, or the session's context ends.
func (e *example) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	e.h.Claimed(s, c)
	for {
		select {
		case m, open := <-c.Messages():
			if !open {
				return nil
			}
			e.h.Process(m)
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			return nil
		}
	}
}
