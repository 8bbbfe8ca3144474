package consumer

import (
	"time"

	"github.com/IBM/sarama"
)

// sampleEvery is the time between two samples of a partition. Messages whose handling takes longer are all sampled.
const sampleEvery = 10 * time.Millisecond

// sampler measures the handling time of some messages, or batches. With sarama's interfaces the tracker measures it, from mark to
// mark. The sampler belongs to the goroutine that reads.
type sampler struct {
	due     time.Duration // when the next sample is due, by the session's clock
	running bool          // a message that was handed out is being measured
	began   time.Time     // when that message was handed out
}

// sample begins a sample with m, which is handed out now, if a sample is due. The clock is that of the last check of the claim.
func (p *Partition) sample(m *sarama.ConsumerMessage) {
	if p.reading.trustedAt >= p.reading.sampler.due {
		p.beginSample(m)
	}
}

func (p *Partition) beginSample(m *sarama.ConsumerMessage) {
	now := time.Now()
	p.reading.sampler.due = p.reading.trustedAt + sampleEvery
	if p.handler.firstAt.Load() == nil {
		p.handler.firstAt.Store(&now)
	}
	if p.metrics.handling == nil {
		return
	}
	if p.handler.channel.Load() != nil {
		p.tracker.Sample()
	} else {
		p.reading.sampler.running, p.reading.sampler.began = true, now
	}
	if m.Timestamp.UnixMilli() >= 0 { // m has a timestamp
		p.metrics.delay.Observe(max(now.Sub(m.Timestamp), 0).Seconds())
	}
}

// handled ends the running sample: the handler has finished with the last message or batch.
func (p *Partition) handled() {
	if p.reading.sampler.running {
		p.reading.sampler.running = false
		p.metrics.handling.Observe(time.Since(p.reading.sampler.began).Seconds())
	}
}
