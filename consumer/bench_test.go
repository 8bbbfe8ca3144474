package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// benchSource returns batches of small messages until n were returned, which costs nothing.
type benchSource struct {
	fakeStream
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
	from, until time.Time
}

func (h *clockHolder) TrustedAt() (at time.Duration, trusted bool) {
	now := time.Now()
	return now.Sub(h.from), now.Before(h.until)
}

// BenchmarkHandOut is what a message costs from the batch that was fetched to the handler, with metrics and without.
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
		"poll 1":   func(p *Partition) int { return pollAll(p, 1) },
		"poll 500": func(p *Partition) int { return pollAll(p, 500) },
		"channel": func(p *Partition) (n int) {
			c := newClaimChannel(p, 256)
			returned := make(chan struct{})
			defer close(returned)
			go c.feed(context.WithoutCancel(p.ctx), returned, func() {})
			for range c.Messages() {
				n++
			}
			return n
		},
	} {
		for _, observed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/metrics=%v", name, observed), func(b *testing.B) {
				b.ReportAllocs()
				assert.Equal(b, read(benchPartition(b, b.N, observed)), b.N, "messages that were handed out")
			})
		}
	}
}

// pollAll polls until reading ends, with a context that may end.
func pollAll(p *Partition, most int) (n int) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	defer cancel()
	for ms, err := p.Poll(ctx, most); err == nil; ms, err = p.Poll(ctx, most) {
		n += len(ms)
	}
	return n
}

// benchPartition returns a partition of n messages.
func benchPartition(b *testing.B, n int, observed bool) *Partition {
	b.Helper()
	s := &benchSource{messages: make([]sarama.ConsumerMessage, 5000), left: n}
	for i := range s.messages {
		s.messages[i] = sarama.ConsumerMessage{Topic: "t", Offset: int64(i), Value: make([]byte, 100), Timestamp: time.Now()}
	}
	m, _ := promreg.New(nil, "g", newMetrics)
	m.observed = observed
	ctx, end := context.WithCancelCause(b.Context())
	b.Cleanup(func() { end(nil) })
	return &Partition{
		ctx: ctx, end: end, id: tp("t", 0), stream: s, tracker: &offsets.Tracker{}, metrics: m.of("t"),
		claim: &clockHolder{from: time.Now(), until: time.Now().Add(time.Hour)},
	}
}

// BenchmarkScrape is what a member that has nothing to do pays for being asked for its metrics.
func BenchmarkScrape(b *testing.B) {
	reg := prometheus.NewRegistry()
	g, err := groupOn(b, reg, "g")
	noerr.Must(b, err)
	defer func() { _ = g.Close() }()
	g.metrics.of("orders")
	b.ReportAllocs()
	series := 0
	for b.Loop() {
		families, err := reg.Gather()
		noerr.Must(b, err)
		series = 0
		for _, f := range families {
			series += len(f.GetMetric())
		}
	}
	b.ReportMetric(float64(series), "series")
}
