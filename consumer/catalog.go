package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// topicInfo is what Kafka says of a topic.
type topicInfo struct {
	id         sarama.Uuid // zero when the brokers have no ids
	partitions []int32     // sorted
	err        error       // the topic can't be described
}

// catalog knows the topics of one Consume call. Topics that Kafka does not know
// any more stay as they were.
type catalog struct {
	topics []string
	// load asks Kafka and blocks; it answers for all topics, or fails.
	load func(topics []string) (map[string]topicInfo, error)
	do   *calls

	mu    sync.Mutex
	infos map[string]topicInfo
	asked time.Time     // when the newest answer was asked for
	turn  chan struct{} // not nil while one asks; closed when it has
}

func newCatalog(topics []string, load func([]string) (map[string]topicInfo, error), do *calls) *catalog {
	return &catalog{topics: topics, load: load, do: do, infos: map[string]topicInfo{}}
}

// refresh asks Kafka unless the newest answer is younger than age; callers at
// the same time share one question. The error joins those of topics that could
// not be described; the others are up to date nevertheless.
func (c *catalog) refresh(ctx context.Context, age time.Duration) error {
	for {
		c.mu.Lock()
		turn := c.turn
		if turn == nil {
			if !c.asked.IsZero() && time.Since(c.asked) < age {
				c.mu.Unlock()
				return nil
			}
			c.turn = make(chan struct{})
			c.mu.Unlock()
			return c.ask(ctx)
		}
		c.mu.Unlock()
		select {
		case <-turn:
			if age == 0 {
				age = time.Millisecond // what we waited for will do
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *catalog) ask(ctx context.Context) error {
	asked := time.Now()
	infos, err := run(ctx, c.do, func() (map[string]topicInfo, error) { return c.load(c.topics) }, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.turn)
	c.turn = nil
	if err != nil {
		return fmt.Errorf("consumer: describe topics: %w", err)
	}
	c.asked = asked
	next := maps.Clone(c.infos)
	var errs []error
	for _, topic := range c.topics {
		info, ok := infos[topic]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("consumer: topic %s: %w", topic, sarama.ErrIncompleteResponse))
		case info.err != nil:
			errs = append(errs, fmt.Errorf("consumer: topic %s: %w", topic, info.err))
		default:
			next[topic] = info
		}
	}
	c.infos = next
	return errors.Join(errs...)
}

// id returns the id of a topic, zero when it is not known.
func (c *catalog) id(topic string) sarama.Uuid {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.infos[topic].id
}

// partitions returns the partitions of all topics; the map is the caller's.
func (c *catalog) partitions() map[string][]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string][]int32, len(c.infos))
	for topic, info := range c.infos {
		out[topic] = slices.Clone(info.partitions)
	}
	return out
}

// added returns the partitions that are in now and not in before.
func added(before, now map[string][]int32) map[string][]int32 {
	out := map[string][]int32{}
	for topic, ids := range now {
		for _, id := range ids {
			if !slices.Contains(before[topic], id) {
				out[topic] = append(out[topic], id)
			}
		}
	}
	return out
}
