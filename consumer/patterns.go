package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// foundTopic says how a topic became known that is asked for by patterns alone.
type foundTopic struct {
	isNew bool // patterns did not find the topic at the first look
	owned bool // this member has had a partition of the topic, so the group's set has or had the topic
}

// question is a question to Kafka about topics.
type question struct {
	at      time.Time
	topics  []string
	changes int // catalog.changes when the question was made
}

// question returns a question about all topics of the catalog.
func (c *catalog) question() question {
	c.mu.Lock()
	defer c.mu.Unlock()
	return question{at: time.Now(), topics: slices.Concat(c.topics, slices.Sorted(maps.Keys(c.found))), changes: c.changes}
}

// look asks Kafka which topics the patterns find, if there are patterns, and then asks about all topics, as refresh does. When
// the first question fails, look asks the second nevertheless, unless the first was never answered.
func (c *catalog) look(ctx context.Context) error {
	var failed error
	if c.find != nil {
		topics, err := kafkaconn.Run(ctx, c.do, c.find, nil)
		c.noteFind(err)
		if err == nil {
			c.add(topics)
		} else if failed = failure("find topics", "", err); !c.hasLooked() {
			return failed
		}
	}
	return errors.Join(failed, c.refresh(ctx, 0))
}

// noteFind stores whether Kafka answered find.
func (c *catalog) noteFind(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unfound = err != nil
}

// add adds the topics that patterns find.
func (c *catalog) add(topics []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range topics {
		c.addOne(topic, false)
	}
	c.looked = true
}

// hasLooked returns whether Kafka has answered find once.
func (c *catalog) hasLooked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looked
}

// own adds a topic of which this member has a partition. Another member may have found it first, or Kafka may not have it.
func (c *catalog) own(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.find != nil {
		c.addOne(topic, true)
	}
}

// addOne adds a topic unless it is asked for by name. c.mu is held.
func (c *catalog) addOne(topic string, owned bool) {
	f, known := c.found[topic]
	if slices.Contains(c.topics, topic) || known && (f.owned || !owned) {
		return
	}
	if !known {
		f.isNew = c.looked
	}
	f.owned = owned
	c.found[topic] = f
	if _, described := c.infos[topic]; !described { // earlier questions did not ask about it
		c.changes++
		c.asked = time.Time{}
	}
}

// isNew returns whether patterns found a topic after the first look.
func (c *catalog) isNew(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found[topic].isNew
}

// forget drops a missing topic that is asked for by patterns alone. It returns false if the topic is none.
func (c *catalog) forget(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.found[topic]; !ok || !c.missing[topic] {
		return false
	}
	c.infos, c.missing = maps.Clone(c.infos), maps.Clone(c.missing)
	delete(c.infos, topic)
	delete(c.missing, topic)
	delete(c.found, topic)
	return true
}

// firstLook asks Kafka for the topics, and for the cluster's id, before the member joins.
func (m *membership) firstLook(ctx context.Context) error {
	if m.topics.HasPatterns() {
		m.catalog.find = func() ([]string, error) {
			topics, err := m.kafka.finder.topics()
			return slices.DeleteFunc(topics, func(topic string) bool { return !m.topics.Finds(topic) }), err
		}
	}
	if err := m.catalog.look(ctx); err != nil {
		return err
	}
	if len(m.catalog.partitions()) == 0 {
		m.log.WarnContext(ctx, "no topic matches the patterns, waiting for one", "topics", m.topics.Entries)
	}
	return m.learnCluster(ctx)
}

// forgetRemoved drops the topics that patterns have found, that Kafka does not have any more, and that were removed from the set.
func (m *membership) forgetRemoved() {
	s := m.allocator.Snapshot()
	if s == nil {
		return
	}
	for topic := range m.catalog.missingTopics() {
		inSet := slices.ContainsFunc(s.Partitions, func(p kiel.Partition) bool { return p.Topic == topic }) || slices.Contains(s.Unwanted, topic)
		if !inSet && m.catalog.forget(topic) {
			m.metrics.forget(topic)
			m.log.Info("missing topic was removed from the set", "topic", topic)
		}
	}
}
