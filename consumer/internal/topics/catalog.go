package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/operr"
)

// Info is Kafka's description of a topic.
type Info struct {
	ID         sarama.Uuid      // the topic's id (KIP-516); zero when the brokers have no ids
	Partitions []int32          // the ids of the partitions, sorted
	Racks      map[int32]string // the racks of the partitions' preferred leaders, as far as they are known
	Err        error            // why the topic can't be described; nil if it can
}

// ok reports whether the topic is described.
func (t Info) ok() bool { return t.Err == nil && len(t.Partitions) > 0 }

// Infos returns the descriptions of an answer of Kafka.
func Infos(resp *sarama.MetadataResponse) map[string]Info {
	infos, racks := make(map[string]Info, len(resp.Topics)), racksOf(resp.Brokers)
	for _, t := range resp.Topics {
		info := Info{ID: t.Uuid, Racks: preferredRacks(t, racks)}
		if t.Err != sarama.ErrNoError && t.Err != sarama.ErrLeaderNotAvailable {
			info.Err = t.Err
		}
		for _, p := range t.Partitions {
			info.Partitions = append(info.Partitions, p.ID)
		}
		slices.Sort(info.Partitions)
		infos[t.Name] = info
	}
	return infos
}

// Options are what a Catalog needs.
type Options struct {
	// Names are the topics that are asked for by name.
	Names []string
	// Load asks Kafka to describe topics, and blocks. It answers for all, or fails.
	Load func(topics []string) (map[string]Info, error)
	// Find asks Kafka which topics the patterns find, and blocks. It is nil if there are no patterns.
	Find func() ([]string, error)
	// Calls has the calls of Load and Find that nobody waits for any more.
	Calls *kafkaconn.Calls

	Reporter *reporting.Reporter
	Logger   *slog.Logger
	// Missing adds n to the number of missing topics, of which topic is one.
	Missing func(topic string, n int)
}

// Catalog caches the descriptions of a membership's topics. A topic that Kafka does not have any more is missing; its last
// description stays. Its methods may be called from any goroutine.
type Catalog struct {
	Options

	notify func(topic string, missing bool)      // called when a topic becomes missing, and when it is back
	grew   func(topic string, before, after int) // called when a topic has more partitions than before

	mu      sync.Mutex
	infos   map[string]Info       // the descriptions; the map is replaced and never changed
	missing map[string]bool       // the missing topics; the map is replaced and never changed
	again   map[string]bool       // the topics that were missing and then were not
	missed  map[string]time.Time  // when Kafka last said that a topic is missing, if that was within missingLately
	asked   time.Time             // when Kafka was asked last
	err     error                 // the error of the last question
	stale   bool                  // Kafka did not answer the last question
	turn    chan struct{}         // closed when the running question is answered; nil when no question runs
	found   map[string]foundTopic // the known topics that are asked for by patterns alone
	looked  bool                  // Find has answered once
	unfound bool                  // Find did not answer the last time
	changes int                   // number of changes of found
}

// New returns a Catalog, which knows nothing before the first question.
func New(opts Options) *Catalog {
	c := &Catalog{Options: opts, infos: map[string]Info{}, missing: map[string]bool{}, again: map[string]bool{}, missed: map[string]time.Time{}, found: map[string]foundTopic{}}
	c.notify, c.grew = c.onMissing, c.onGrew
	return c
}

// Refresh asks Kafka unless Kafka was asked within the last age. Callers at the same time share a question. The error joins the
// errors of topics that could not be described; the other topics are up to date nevertheless. A missing topic that was known
// before is no error.
func (c *Catalog) Refresh(ctx context.Context, age time.Duration) error {
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
func (c *Catalog) ask(ctx context.Context) error {
	q := c.question()
	var infos map[string]Info
	var err error
	if len(q.topics) > 0 { // Kafka takes an empty list for all topics
		infos, err = kafkaconn.Run(ctx, c.Calls, func() (map[string]Info, error) { return c.Load(q.topics) }, nil)
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
		if was, ok := before[topic]; ok && was.ID == info.ID && len(info.Partitions) > len(was.Partitions) {
			c.grew(topic, len(was.Partitions), len(info.Partitions))
		}
	}
	return err
}

// Knows reports whether a topic has been described.
func (c *Catalog) Knows() bool { return len(c.known()) > 0 }

// known returns the descriptions of the topics. The map must not be changed.
func (c *Catalog) known() map[string]Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.infos
}

// answered stores Kafka's answer, and returns the topics that have become missing, and those that are back.
func (c *Catalog) answered(ctx context.Context, q question, infos map[string]Info, err error) (missing, back []string, _ error) {
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
		c.err = operr.New("consumer", "describe topics", "", err)
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
		case !byPattern && !slices.Contains(c.Names, topic): // the topic was forgotten meanwhile
		case (known || f.owned) && errors.Is(info.Err, sarama.ErrUnknownTopicOrPartition):
			if !now[topic] {
				missing = append(missing, topic)
			}
			now[topic], c.missed[topic] = true, q.at
		case byPattern && !known && !f.owned && !info.ok(): // the next look may find it again
			if errors.Is(info.Err, sarama.ErrUnknownTopicOrPartition) {
				delete(c.found, topic)
			}
		case !ok:
			errs = append(errs, operr.New("consumer", "topic", topic, sarama.ErrIncompleteResponse))
		case info.Err == nil && len(info.Partitions) == 0: // every topic has a partition; this broker does not know the topic yet
			errs = append(errs, operr.New("consumer", "topic", topic, fmt.Errorf("no partitions: %w", sarama.ErrIncompleteResponse)))
		case errors.Is(info.Err, sarama.ErrTopicAuthorizationFailed):
			errs = append(errs, reporting.Refused("topic", topic, 0, info.Err))
		case info.Err != nil:
			errs = append(errs, operr.New("consumer", "topic", topic, info.Err))
		default:
			next[topic] = info
			if now[topic] {
				back, c.again[topic] = append(back, topic), true
			}
			delete(now, topic)
		}
	}
	c.infos, c.missing, c.err = next, now, errors.Join(errs...)
	return missing, back, c.err
}

// isUnanswered reports whether Kafka did not answer the last question about the topics, or the last question of Find.
func (c *Catalog) isUnanswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale || c.unfound
}

// IsMissing reports whether Kafka does not have a topic any more.
func (c *Catalog) IsMissing(topic string) bool { return c.missingTopics()[topic] }

// wasMissing reports whether Kafka said within missingLately that it does not have a topic.
func (c *Catalog) wasMissing(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.missed[topic]
	return ok && time.Since(at) < missingLately
}

// missingTopics returns the topics that Kafka does not have any more. The map must not be changed.
func (c *Catalog) missingTopics() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing
}

// ID returns the id of a topic, zero when it is not known.
func (c *Catalog) ID(topic string) sarama.Uuid {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.infos[topic].ID
}

// Count returns how many partitions a topic has, 0 when that is not known.
func (c *Catalog) Count(topic string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int32(len(c.infos[topic].Partitions))
}

// IDs returns the partitions of a topic. The slice must not be changed.
func (c *Catalog) IDs(topic string) []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.infos[topic].Partitions
}

// Partitions returns the partitions of all topics; the map is the caller's.
func (c *Catalog) Partitions() map[string][]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string][]int32, len(c.infos))
	for topic, info := range c.infos {
		out[topic] = slices.Clone(info.Partitions)
	}
	return out
}

// present returns the partitions of all topics that are not missing; the map is the caller's. It returns nil if Kafka did not
// answer the last question, because then any topic may be missing.
func (c *Catalog) present() map[string][]int32 {
	c.mu.Lock()
	stale := c.stale
	c.mu.Unlock()
	if stale {
		return nil
	}
	all := c.Partitions()
	for topic := range c.missingTopics() {
		delete(all, topic)
	}
	return all
}

// Racks returns the racks of the preferred leaders of all partitions, as far as they are known; the map is the caller's.
func (c *Catalog) Racks() map[kiel.Partition]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[kiel.Partition]string{}
	for topic, info := range c.infos {
		for id, rack := range info.Racks {
			out[kiel.Partition{Topic: topic, ID: id}] = rack
		}
	}
	return out
}
