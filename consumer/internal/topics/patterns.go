package topics

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/operr"
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
func (c *Catalog) question() question {
	c.mu.Lock()
	defer c.mu.Unlock()
	return question{at: time.Now(), topics: slices.Concat(c.Names, slices.Sorted(maps.Keys(c.found))), changes: c.changes}
}

// Look asks Kafka which topics the patterns find, if there are patterns, and then asks about all topics, as Refresh does. When
// the first question fails, Look asks the second nevertheless, unless the first was never answered.
func (c *Catalog) Look(ctx context.Context) error {
	var failed error
	if c.Find != nil {
		topics, err := kafkaconn.Run(ctx, c.Calls, c.Find, nil)
		c.noteFind(err)
		if err == nil {
			c.add(topics)
		} else if failed = operr.New("consumer", "find topics", "", err); !c.hasLooked() {
			return failed
		}
	}
	return errors.Join(failed, c.Refresh(ctx, 0))
}

// noteFind stores whether Kafka answered Find.
func (c *Catalog) noteFind(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unfound = err != nil
}

// add adds the topics that patterns find.
func (c *Catalog) add(topics []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range topics {
		c.addOne(topic, false)
	}
	c.looked = true
}

// hasLooked reports whether Kafka has answered Find once.
func (c *Catalog) hasLooked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looked
}

// Own adds a topic of which this member has a partition. Another member may have found it first, or Kafka may not have it.
func (c *Catalog) Own(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Find != nil {
		c.addOne(topic, true)
	}
}

// addOne adds a topic unless it is asked for by name. c.mu is held.
func (c *Catalog) addOne(topic string, owned bool) {
	f, known := c.found[topic]
	if slices.Contains(c.Names, topic) || known && (f.owned || !owned) {
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

// IsNew reports whether a topic was created while this member consumes: patterns found it after the first look, or it was
// missing.
func (c *Catalog) IsNew(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found[topic].isNew || c.again[topic]
}

// forget drops a missing topic that is asked for by patterns alone. It returns false if the topic is none.
func (c *Catalog) forget(topic string) bool {
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
