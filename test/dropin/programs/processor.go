package programs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// inputBuffer is how many messages of a partition wait for its worker.
const inputBuffer = 10

// ErrNoWorker is what ConsumeClaim of [Processor] returns for a partition that Claims did not name in Setup.
var ErrNoWorker = errors.New("no worker for this partition")

// Processor has a worker for each partition that Claims names in Setup, and stops all of them in Cleanup. A ConsumeClaim hands
// its messages to the partition's worker, which processes and marks them; without a worker it returns an error. Between two
// sessions it waits.
func Processor(ctx context.Context, h Host) error {
	return consume(ctx, h, &processor{h: h}, func() {
		pause := time.NewTimer(h.Pause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	})
}

type processor struct {
	h Host

	mu      sync.Mutex
	workers map[int32]*worker
}

// worker processes the messages of one partition.
type worker struct {
	input   chan *sarama.ConsumerMessage
	stop    chan struct{}
	stopped chan struct{}
}

func (p *processor) Setup(s sarama.ConsumerGroupSession) error {
	p.h.Setup(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers = map[int32]*worker{}
	for _, id := range s.Claims()[p.h.Topic] {
		w := &worker{
			input: make(chan *sarama.ConsumerMessage, inputBuffer), stop: make(chan struct{}), stopped: make(chan struct{}),
		}
		p.workers[id] = w
		go w.work(s, p.h.Process)
	}
	return nil
}

func (p *processor) Cleanup(sarama.ConsumerGroupSession) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		close(w.stop)
		<-w.stopped
	}
	p.workers = nil
	return nil
}

func (p *processor) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	p.mu.Lock()
	w := p.workers[c.Partition()]
	p.mu.Unlock()
	if w == nil {
		return fmt.Errorf("%w: %d", ErrNoWorker, c.Partition())
	}
	for {
		select {
		case m, open := <-c.Messages():
			if !open {
				return nil
			}
			select {
			case w.input <- m:
			case <-s.Context().Done():
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

// work ends when stop is closed; what waits then is left to the next session.
func (w *worker) work(s sarama.ConsumerGroupSession, process func(*sarama.ConsumerMessage)) {
	defer close(w.stopped)
	for {
		select {
		case m := <-w.input:
			process(m)
			s.MarkMessage(m, "")
		case <-w.stop:
			return
		}
	}
}
