package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// watchEvery is how often the topics are looked at for new partitions, and for
// having been created again, if the configuration does not ask for more.
const watchEvery = time.Minute

// watchTopics adds partitions that the topics get, and closes those of topics
// that were created again. It sends to asked, if there is room, when it has asked.
func (m *membership) watchTopics(ctx context.Context, asked chan<- struct{}) {
	every := watchEvery
	if f := m.group.settings.config.Metadata.RefreshFrequency; f > 0 {
		every = min(every, f)
	}
	known := m.catalog.partitions()
	for kafkaconn.Sleep(ctx, every) == nil {
		if err := m.catalog.refresh(ctx, 0); err != nil && ctx.Err() == nil {
			m.group.report(err)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		m.openPartitions.check(m.catalog.id)
		now := m.catalog.partitions()
		more := added(known, now)
		if len(more) == 0 {
			continue
		}
		if err := m.allocator.AddPartitions(ctx, more); err != nil {
			if ctx.Err() == nil {
				m.group.report(fmt.Errorf("consumer: add partitions: %w", err))
			}
			continue // known stays, so it is tried again
		}
		known = now
	}
}

// openPartitions are the partitions that are open, to be closed when their topic is created again.
type openPartitions struct {
	mu    sync.Mutex
	stops map[*opening]context.CancelCauseFunc
}

func (o *openPartitions) add(t *opening, stop context.CancelCauseFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stops == nil {
		o.stops = map[*opening]context.CancelCauseFunc{}
	}
	o.stops[t] = stop
}

func (o *openPartitions) remove(t *opening) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.stops, t)
}

// check closes the partitions whose topic's id has changed.
func (o *openPartitions) check(id func(topic string) sarama.Uuid) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, stop := range o.stops {
		if !offsets.SameTopic(t.topicID, id(t.tp.Topic)) {
			stop(offsets.Recreated(t.tp.Topic))
		}
	}
}
