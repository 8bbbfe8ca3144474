package consumer

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkPump is what a message costs between sarama's channel and the handler;
// the channel itself is in it too.
func BenchmarkPump(b *testing.B) {
	s := newStream(tp("t", 0))
	s.messages = make(chan *sarama.ConsumerMessage, 256)
	h := &fakeHolder{p: tp("t", 0)}
	p := &pump{
		claim:     newClaim(h, s, 0),
		limit:     1 << 20,
		handedOut: func(*sarama.ConsumerMessage) *callback { return nil },
		messages:  prometheus.NewCounter(prometheus.CounterOpts{Name: "m_total", Help: "M."}),
		bytes:     prometheus.NewCounter(prometheus.CounterOpts{Name: "b_total", Help: "B."}),
	}
	done := make(chan error, 1)
	go func() { done <- p.run(b.Context()) }()
	m := &sarama.ConsumerMessage{Value: make([]byte, 100)}
	go func() {
		for range b.N {
			s.messages <- m
		}
		s.AsyncClose()
	}()
	b.ResetTimer()
	for range p.claim.Messages() {
	}
	<-done
}
