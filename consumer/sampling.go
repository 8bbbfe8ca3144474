package consumer

import (
	"time"

	"github.com/IBM/sarama"
)

// sampleEvery is the time between two messages of a partition that are sampled. What takes longer than that is sampled each time.
const sampleEvery = 10 * time.Millisecond

// sampler measures now and then what becomes of a message, or of a batch. It belongs to the goroutine that reads.
type sampler struct {
	due     time.Duration // when the next sample is due, by the session's clock
	running bool          // a message that was handed out is being measured
	began   time.Time     // when it was handed out
	waited  bool          // a batch was waited for; reset by who wants to know
}

// sample begins a sample with m, which is handed out now, if one is due. The clock for that was read to check the claim.
func (p *Partition) sample(m *sarama.ConsumerMessage) {
	if p.at >= p.sampler.due {
		p.beginSample(m)
	}
}

func (p *Partition) beginSample(m *sarama.ConsumerMessage) {
	now := time.Now()
	p.sampler.due = p.at + sampleEvery
	if p.firstAt.Load() == nil {
		p.firstAt.Store(&now)
	}
	if p.metrics.handling == nil {
		return
	}
	p.sampler.running, p.sampler.began = true, now
	if m.Timestamp.UnixMilli() >= 0 { // it has one
		p.metrics.delay.Observe(max(now.Sub(m.Timestamp), 0).Seconds())
	}
}

// handled notes that the handler has finished with what was handed out last.
func (p *Partition) handled() {
	if p.sampler.running {
		p.sampler.running = false
		p.metrics.handling.Observe(time.Since(p.sampler.began).Seconds())
	}
}

// dropSample notes that it does not show when the handler has finished.
func (p *Partition) dropSample() { p.sampler.running = false }
