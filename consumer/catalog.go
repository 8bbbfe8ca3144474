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

// topicInfo is Kafka's description of a topic.
type topicInfo struct {
	id         sarama.Uuid      // the topic's id (KIP-516); zero when the brokers have no ids
	partitions []int32          // the ids of the partitions, sorted
	racks      map[int32]string // the racks of the partitions' preferred leaders, as far as they are known
	err        error            // why the topic can't be described; nil if it can
}

// ok returns whether the topic is described.
func (t topicInfo) ok() bool { return t.err == nil && len(t.partitions) > 0 }

// catalog caches the descriptions of a membership's topics. A topic that Kafka does not have any more is missing; its last
// description stays.
type catalog struct {
	topics []string // the topics that are asked for by name
	// load asks Kafka and blocks; it answers for all topics, or fails.
	load func(topics []string) (map[string]topicInfo, error)
	do   *kafkaconn.Calls
	// notify is called when a topic becomes missing, and when it is back.
	notify func(topic string, missing bool)
	// grew is called when a topic has more partitions than before.
	grew func(topic string, from, to int)
	// find asks Kafka which topics the patterns find, and blocks. It is nil if there are no patterns.
	find func() ([]string, error)

	mu      sync.Mutex
	infos   map[string]topicInfo  // the descriptions; the map is replaced and never changed
	missing map[string]bool       // the missing topics; the map is replaced and never changed
	missed  map[string]time.Time  // when Kafka last said that a topic is missing, if that was within missingLately
	asked   time.Time             // when Kafka was asked last
	err     error                 // the error of the last question
	stale   bool                  // Kafka did not answer the last question
	turn    chan struct{}         // closed when the running question is answered; nil when no question runs
	found   map[string]foundTopic // the known topics that are asked for by patterns alone
	looked  bool                  // find has answered once
	unfound bool                  // find did not answer the last time
	changes int                   // number of changes of found
}

func newCatalog(topics []string, load func([]string) (map[string]topicInfo, error), do *kafkaconn.Calls) *catalog {
	return &catalog{
		topics: topics, load: load, do: do, infos: map[string]topicInfo{}, missing: map[string]bool{}, missed: map[string]time.Time{},
		notify: func(string, bool) {}, grew: func(string, int, int) {}, found: map[string]foundTopic{},
	}
}

// refresh asks Kafka unless Kafka was asked within the last age. Callers at the same time share a question. The error joins the
// errors of topics that could not be described; the other topics are up to date nevertheless. A missing topic that was known
// before is no error.
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
	if len(q.topics) > 0 { // Kafka takes an empty list for all topics
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

// known returns the descriptions of the topics. The map must not be changed.
func (c *catalog) known() map[string]topicInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.infos
}

// answered stores Kafka's answer, and returns the topics that have become missing, and those that are back.
func (c *catalog) answered(ctx context.Context, q question, infos map[string]topicInfo, err error) (missing, back []string, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.turn)
	c.turn = nil
	if ctx.Err() != nil {
		return nil, nil, err // the caller gave up, which says nothing about Kafka
	}
	c.stale = err != nil
	if c.asked = q.at; q.changes != c.changes {
		c.asked = time.Time{} // a topic was found that was not asked about
	}
	if err != nil {
		c.err = failure("describe topics", "", err)
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
		case !byPattern && !slices.Contains(c.topics, topic): // the topic was forgotten meanwhile
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
			errs = append(errs, failure("topic", topic, sarama.ErrIncompleteResponse))
		case info.err == nil && len(info.partitions) == 0: // every topic has a partition; this broker does not know the topic yet
			errs = append(errs, failure("topic", topic, fmt.Errorf("no partitions: %w", sarama.ErrIncompleteResponse)))
		case errors.Is(info.err, sarama.ErrTopicAuthorizationFailed):
			errs = append(errs, refused("topic", topic, 0, info.err))
		case info.err != nil:
			errs = append(errs, failure("topic", topic, info.err))
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

// isUnanswered returns whether Kafka did not answer the last question about the topics, or the last question of find.
func (c *catalog) isUnanswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale || c.unfound
}

// isMissing returns whether Kafka does not have a topic any more.
func (c *catalog) isMissing(topic string) bool { return c.missingTopics()[topic] }

// wasMissing returns whether Kafka said within missingLately that it does not have a topic.
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
	return int32(len(c.infos[topic].partitions))
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

// present returns the partitions of all topics that are not missing; the map is the caller's. It returns nil if Kafka did not
// answer the last question, because then any topic may be missing.
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

// racks returns the racks of the preferred leaders of all partitions, as far as they are known; the map is the caller's.
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
