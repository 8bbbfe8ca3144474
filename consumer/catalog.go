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

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// topicInfo is what Kafka says of a topic.
type topicInfo struct {
	id         sarama.Uuid      // zero when the brokers have no ids
	partitions []int32          // sorted
	racks      map[int32]string // of the partitions' preferred leaders, as far as they are known
	err        error            // the topic can't be described
}

// ok returns whether the topic is described.
func (t topicInfo) ok() bool { return t.err == nil && len(t.partitions) > 0 }

// catalog knows the topics of a membership. A topic that Kafka does not have any more is missing; what was known of it stays.
type catalog struct {
	topics []string // those that are asked for by name
	// load asks Kafka and blocks; it answers for all topics, or fails.
	load func(topics []string) (map[string]topicInfo, error)
	do   *kafkaconn.Calls
	// notify is called when a topic becomes missing, and when it is back; grew when it has got partitions.
	notify func(topic string, missing bool)
	grew   func(topic string, from, to int)
	// find asks Kafka which topics the patterns find, and blocks. It is nil if there are no patterns.
	find func() ([]string, error)

	mu      sync.Mutex
	infos   map[string]topicInfo // only ever replaced
	missing map[string]bool      // only ever replaced
	missed  map[string]time.Time // when topics that were missing were found so last, within missingLately
	asked   time.Time            // when Kafka was asked last
	err     error                // what that came to
	stale   bool                 // Kafka did not answer then
	turn    chan struct{}        // not nil while one asks; closed when it has
	found   map[string]finding   // the topics that are asked for by patterns alone, as far as they are known
	looked  bool                 // find has answered
	unfound bool                 // find did not answer the last time
	changes int                  // of found
}

func newCatalog(topics []string, load func([]string) (map[string]topicInfo, error), do *kafkaconn.Calls) *catalog {
	return &catalog{
		topics: topics, load: load, do: do, infos: map[string]topicInfo{}, missing: map[string]bool{}, missed: map[string]time.Time{},
		notify: func(string, bool) {}, grew: func(string, int, int) {}, found: map[string]finding{},
	}
}

// refresh asks Kafka unless it was asked less than age before; callers at the
// same time share a question. The error joins those of topics that could not be
// described; the others are up to date nevertheless. That a topic is missing which
// was known before is no error.
func (c *catalog) refresh(ctx context.Context, age time.Duration) error {
	oldest := time.Now().Add(-age)
	for {
		c.mu.Lock()
		if !c.asked.Before(oldest) {
			defer c.mu.Unlock()
			return c.err
		}
		turn := c.turn
		if turn == nil {
			c.turn = make(chan struct{})
			c.mu.Unlock()
			return c.ask(ctx)
		}
		c.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ask asks Kafka. It is called by one at a time.
func (c *catalog) ask(ctx context.Context) error {
	q := c.question()
	var infos map[string]topicInfo
	var err error
	if len(q.topics) > 0 { // none at all would be all
		infos, err = kafkaconn.Run(ctx, c.do, func() (map[string]topicInfo, error) { return c.load(q.topics) }, nil)
	}
	before := c.known()
	missing, back, err := c.answered(ctx, q, infos, err)
	for _, topic := range missing {
		c.notify(topic, true)
	}
	for _, topic := range back {
		c.notify(topic, false)
	}
	for topic, info := range c.known() {
		if was, ok := before[topic]; ok && was.id == info.id && len(info.partitions) > len(was.partitions) {
			c.grew(topic, len(was.partitions), len(info.partitions))
		}
	}
	return err
}

// known returns what is known of the topics. The map must not be changed.
func (c *catalog) known() map[string]topicInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.infos
}

// answered takes in what Kafka answered, and returns the topics that have become missing, and those that are back.
func (c *catalog) answered(ctx context.Context, q question, infos map[string]topicInfo, err error) (missing, back []string, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.turn)
	c.turn = nil
	if ctx.Err() != nil {
		return nil, nil, err // says nothing to others
	}
	c.stale = err != nil
	if c.asked = q.at; q.changes != c.changes {
		c.asked = time.Time{} // another topic has come
	}
	if err != nil {
		c.err = fmt.Errorf("consumer: describe topics: %w", err)
		return nil, nil, c.err
	}
	maps.DeleteFunc(c.missed, func(_ string, at time.Time) bool { return q.at.Sub(at) >= missingLately })
	next, now := maps.Clone(c.infos), maps.Clone(c.missing)
	var errs []error
	for _, topic := range q.topics {
		info, ok := infos[topic]
		_, known := c.infos[topic]
		f, byPattern := c.found[topic]
		switch {
		case !byPattern && !slices.Contains(c.topics, topic): // forgotten meanwhile
		case (known || f.owned) && errors.Is(info.err, sarama.ErrUnknownTopicOrPartition):
			if !now[topic] {
				missing = append(missing, topic)
			}
			now[topic], c.missed[topic] = true, q.at
		case byPattern && !known && !f.owned && !info.ok(): // the next look may find it again
			if errors.Is(info.err, sarama.ErrUnknownTopicOrPartition) {
				delete(c.found, topic)
			}
		case !ok:
			errs = append(errs, fmt.Errorf("consumer: topic %s: %w", topic, sarama.ErrIncompleteResponse))
		case info.err == nil && len(info.partitions) == 0: // no topic is so; a broker does not know it yet
			errs = append(errs, fmt.Errorf("consumer: topic %s: no partitions: %w", topic, sarama.ErrIncompleteResponse))
		case errors.Is(info.err, sarama.ErrTopicAuthorizationFailed):
			errs = append(errs, refused("topic", topic, 0, info.err))
		case info.err != nil:
			errs = append(errs, fmt.Errorf("consumer: topic %s: %w", topic, info.err))
		default:
			next[topic] = info
			if now[topic] {
				back = append(back, topic)
			}
			delete(now, topic)
		}
	}
	c.infos, c.missing, c.err = next, now, errors.Join(errs...)
	return missing, back, c.err
}

// isUnanswered returns whether Kafka did not answer when it was asked last, about the topics or for those that patterns find.
func (c *catalog) isUnanswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale || c.unfound
}

// isMissing returns whether Kafka does not have a topic any more.
func (c *catalog) isMissing(topic string) bool { return c.missingTopics()[topic] }

// wasMissing returns whether Kafka did not have a topic when it was asked lately.
func (c *catalog) wasMissing(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.missed[topic]
	return ok && time.Since(at) < missingLately
}

// missingTopics returns the topics that Kafka does not have any more. The map must not be changed.
func (c *catalog) missingTopics() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing
}

// id returns the id of a topic, zero when it is not known.
func (c *catalog) id(topic string) sarama.Uuid {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.infos[topic].id
}

// count returns how many partitions a topic has, 0 when that is not known.
func (c *catalog) count(topic string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int32(len(c.infos[topic].partitions)) //nolint:gosec // partitions have numbers of 32 bits
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

// present returns the partitions of all topics that are not missing; the map is the caller's. It returns none if Kafka did not
// answer when it was asked last: then any may be missing.
func (c *catalog) present() map[string][]int32 {
	c.mu.Lock()
	stale := c.stale
	c.mu.Unlock()
	if stale {
		return nil
	}
	all := c.partitions()
	for topic := range c.missingTopics() {
		delete(all, topic)
	}
	return all
}

// racks returns the racks of the preferred leaders of all partitions, as far as
// they are known; the map is the caller's.
func (c *catalog) racks() map[kiel.Partition]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[kiel.Partition]string{}
	for topic, info := range c.infos {
		for id, rack := range info.racks {
			out[kiel.Partition{Topic: topic, ID: id}] = rack
		}
	}
	return out
}
