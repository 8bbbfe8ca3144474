package programs

import (
	"context"

	"github.com/IBM/sarama"
)

// Traced is a plain handler in a wrapper that traces each message: it gives the handler a claim with a channel of its own, which
// a goroutine fills from that of the claim, and closes when that is closed. The session is wrapped, too.
func Traced(ctx context.Context, h Host) error {
	return consume(ctx, h, tracing{plain{h}}, func() {})
}

// plain is a handler as most are.
type plain struct{ h Host }

func (p plain) Setup(s sarama.ConsumerGroupSession) error {
	p.h.Setup(s)
	return nil
}

func (plain) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (p plain) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	p.h.Claimed(s, c)
	for m := range c.Messages() {
		p.h.Process(m)
		s.MarkMessage(m, "")
	}
	return nil
}

// tracing wraps a handler.
type tracing struct{ sarama.ConsumerGroupHandler }

func (t tracing) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	traced := tracedClaim{ConsumerGroupClaim: c, out: make(chan *sarama.ConsumerMessage)}
	go traced.forward()
	return t.ConsumerGroupHandler.ConsumeClaim(tracedSession{s}, traced)
}

// tracedSession hides the session that it wraps, as tracedClaim does a claim.
type tracedSession struct{ sarama.ConsumerGroupSession }

// tracedClaim hides the claim that it wraps: it can't be asserted for anything else.
type tracedClaim struct {
	sarama.ConsumerGroupClaim
	out chan *sarama.ConsumerMessage
}

func (c tracedClaim) Messages() <-chan *sarama.ConsumerMessage { return c.out }

// forward hands on messages with a header, and knows no other end than that of the claim's channel.
func (c tracedClaim) forward() {
	defer close(c.out)
	for m := range c.ConsumerGroupClaim.Messages() {
		m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte("trace"), Value: []byte("1")})
		c.out <- m
	}
}
