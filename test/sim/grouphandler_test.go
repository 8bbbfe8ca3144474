package sim_test

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// api is the part of package consumer with which a Group reads its partitions.
type api int

const (
	saramaAPI api = iota // Consume, with a handler of sarama's kind
	plainMark            // Run, with a handler that marks one message after the other
	plainDone            // Run, with a handler that works on several messages at a time and finishes them in another order
)

func (a api) String() string {
	return [...]string{"group: handler of Consume", "group: handler of Run marks", "group: handler of Run works concurrently"}[a]
}

// api returns what the process's Group uses. The seed and the slot decide: three members of a group use all three.
func (p *process) api() api { return api((p.w.plan.Seed/3 + uint64(p.slot)) % 3) }

// reopens returns the process's Options.ReopenPartition. Half of the members of a group have it.
func (p *process) reopens() bool { return (p.w.plan.Seed/7+uint64(p.slot))%2 == 1 }

const (
	doneWorkers = 4 // messages of one partition that a handler works on at a time
	doneWindow  = 6 // Options.MaxUnmarked: smaller than a batch may be, so that it fills
)

// consumeOnce is one Consume or Run call.
func (p *process) consumeOnce(ctx context.Context) error {
	p.w.cov.hit(p.api().String())
	switch p.api() {
	case plainMark:
		return p.group.Run(ctx, p.asked(), p.markEach)
	case plainDone:
		return p.group.Run(ctx, p.asked(), p.workConcurrently)
	default:
		return p.group.Consume(ctx, p.asked(), groupHandler{p})
	}
}

// attend is what all handlers do before they process a message. It reports false if the handler is to return err.
func (p *process) attend() (ok bool, err error) {
	if d := p.slowness(); d > 0 {
		time.Sleep(d)
	}
	if panics, returns := p.mood(); panics {
		panic("simulated")
	} else if returns {
		return false, errMood
	}
	_, alive := p.gate(true)
	return alive, nil
}

// awaitUnstuck does not return while the process's handlers are stuck.
func (p *process) awaitUnstuck() {
	if stuck := p.stuckNow(); stuck != nil {
		<-stuck
	}
}

// groupHandler is the handler given to Consume.
type groupHandler struct{ p *process }

func (h groupHandler) Setup(sarama.ConsumerGroupSession) error {
	h.p.w.mon.between(h.p, true)
	return nil
}

func (h groupHandler) Cleanup(sarama.ConsumerGroupSession) error {
	h.p.w.mon.between(h.p, false)
	return nil
}

func (h groupHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claimed sarama.ConsumerGroupClaim) error {
	messages := func(yield func(*sarama.ConsumerMessage) bool) {
		for m := range claimed.Messages() {
			if !yield(m) {
				return
			}
		}
	}
	return h.p.work(claimed.(consumer.Claim), messages, func(m *sarama.ConsumerMessage) { s.MarkMessage(m, "") })
}

// plainClaim is a consumer.Partition for the monitor.
type plainClaim struct{ part *consumer.Partition }

func (c plainClaim) Topic() string    { return c.part.Topic() }
func (c plainClaim) Partition() int32 { return c.part.ID() }
func (c plainClaim) Token() int64     { return c.part.Token() }
func (c plainClaim) Trusted() bool    { return c.part.Trusted() }

// markEach is a handler given to Run.
func (p *process) markEach(_ context.Context, part *consumer.Partition) error {
	return p.work(plainClaim{part}, part.Messages(), part.Mark)
}

// work processes and marks one message after the other.
func (p *process) work(c claim, messages iter.Seq[*sarama.ConsumerMessage], mark func(*sarama.ConsumerMessage)) error {
	t := p.w.mon.enter(p, c)
	defer p.w.mon.exit(p, c)
	for m := range messages {
		if ok, err := p.attend(); !ok {
			return err
		}
		if t != nil {
			p.w.mon.handled(t, m.Offset)
		}
		mark(m)
	}
	p.awaitUnstuck()
	return nil
}

// workConcurrently is a handler given to Run. Its workers take longer for some messages than for others.
func (p *process) workConcurrently(_ context.Context, part *consumer.Partition) error {
	c := plainClaim{part}
	t := p.w.mon.enter(p, c)
	defer p.w.mon.exit(p, c)
	var workers sync.WaitGroup
	defer workers.Wait()
	free := make(chan struct{}, doneWorkers)
	for m := range part.Messages() {
		if ok, err := p.attend(); !ok {
			return err
		}
		free <- struct{}{}
		workers.Go(func() {
			defer func() { <-free }()
			time.Sleep(time.Duration(7*m.Offset%5) * 100 * time.Millisecond)
			if _, alive := p.gate(true); !alive {
				return
			}
			if t != nil {
				p.w.mon.handled(t, m.Offset)
			}
			part.Done(m)
		})
	}
	p.awaitUnstuck()
	return nil
}
