package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// benchSource returns batches of small messages until n were returned, which costs nothing.
type benchSource struct {
	fakeSource
	messages []sarama.ConsumerMessage
	left     int
}

func (s *benchSource) Next(context.Context) (fetch.Batch, error) {
	if s.left <= 0 {
		return fetch.Batch{}, errHandlerReturned
	}
	ms := s.messages[:min(s.left, len(s.messages))]
	s.left -= len(ms)
	return fetch.Batch{Messages: ms}, nil
}

// clockHolder is a claim that reads the clock, as real ones do.
type clockHolder struct {
	fakeHolder
	until time.Time
}

func (h *clockHolder) Trusted() bool { return time.Now().Before(h.until) }

// BenchmarkHandOut is what a message costs from the batch that was fetched to the handler.
func BenchmarkHandOut(b *testing.B) {
	for name, read := range map[string]func(p *Partition) int{
		"messages": func(p *Partition) (n int) {
			for range p.Messages() {
				n++
			}
			return n
		},
		"batches": func(p *Partition) (n int) {
			for ms := range p.Batches() {
				n += len(ms)
			}
			return n
		},
		"channel": func(p *Partition) (n int) {
			c := newClaim(p, 256)
			returned := make(chan struct{})
			defer close(returned)
			go c.feed(context.WithoutCancel(p.ctx), returned)
			for range c.Messages() {
				n++
			}
			return n
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := &benchSource{messages: make([]sarama.ConsumerMessage, 5000), left: b.N}
			for i := range s.messages {
				s.messages[i] = sarama.ConsumerMessage{Topic: "t", Offset: int64(i), Value: make([]byte, 100)}
			}
			ctx, end := context.WithCancelCause(b.Context())
			defer end(nil)
			p := &Partition{
				ctx: ctx, end: end, id: tp("t", 0), source: s, tracker: &offsets.Tracker{},
				claim: &clockHolder{until: time.Now().Add(time.Hour)},
				metrics: partitionMetrics{
					messages: prometheus.NewCounter(prometheus.CounterOpts{Name: "m_total", Help: "M."}),
					bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "b_total", Help: "B."}),
				},
			}
			b.ReportAllocs()
			if n := read(p); n != b.N {
				b.Errorf("%d messages were handed out, want %d", n, b.N)
			}
		})
	}
}
