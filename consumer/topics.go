package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/pause"
)

// newCatalog returns the catalog of the member's topics.
func (m *membership) newCatalog(k *kafka) *topics.Catalog {
	opts := topics.Options{
		Names: m.topics.Names, Load: k.describe, Calls: &k.do, Reporter: m.report, Logger: m.log,
		Missing: func(topic string, n int) { m.metrics.missing.WithLabelValues(labelOf(topic)).Add(float64(n)) },
	}
	if m.topics.HasPatterns() {
		opts.Find = func() ([]string, error) {
			all, err := k.finder.Topics()
			return slices.DeleteFunc(all, func(topic string) bool { return !m.topics.Finds(topic) }), err
		}
	}
	return topics.New(opts)
}

// firstLook asks Kafka for the topics, and for the cluster's id, before the member joins.
func (m *membership) firstLook(ctx context.Context) error {
	err := m.catalog.Look(ctx)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		err = m.lookAndCreate(ctx, err)
	}
	m.group.seen.add(m.catalog.Partitions())
	if err != nil {
		return err
	}
	if len(m.catalog.Partitions()) == 0 {
		m.log.WarnContext(ctx, "no topic matches the patterns, waiting for one", "topics", m.topics.Entries)
	}
	return m.learnCluster(ctx)
}

// lookAndCreate has Kafka create topics that do not exist, as a program's Config says, and looks again. It does so only for
// topics that the Group has never seen: one that was deleted stays deleted. failed is the error of the look before, which it
// returns if there is nothing to create. Brokers that do not create topics do not say so; lookAndCreate gives up as sarama does.
func (m *membership) lookAndCreate(ctx context.Context, failed error) error {
	retry := m.group.settings.config.Metadata.Retry
	known := m.catalog.Partitions()
	names := slices.DeleteFunc(slices.Clone(m.topics.Names), func(topic string) bool {
		_, ok := known[topic]
		return ok || m.group.seen.has(topic)
	})
	if !m.group.settings.createsTopics() || len(names) == 0 {
		return failed
	}
	_, err := kafkaconn.Run(ctx, &m.kafka.do, func() (struct{}, error) { return struct{}{}, m.kafka.create(names) }, nil)
	if err != nil {
		m.log.WarnContext(ctx, "topics could not be created", "topics", names, "error", err)
		return failed
	}
	for range retry.Max {
		if failed = m.catalog.Look(ctx); !errors.Is(failed, sarama.ErrUnknownTopicOrPartition) {
			break
		}
		if err := pause.Sleep(ctx, retry.Backoff); err != nil {
			return err
		}
	}
	if failed == nil {
		m.log.InfoContext(ctx, "topics did not exist, and Kafka has created them", "topics", names)
	}
	return failed
}

// seenTopics are the topics that a Group has found in Kafka as its calls began.
type seenTopics struct {
	mu    sync.Mutex
	names map[string]bool
}

func (s *seenTopics) add(found map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]bool{}
	}
	for name := range found {
		s.names[name] = true
	}
}

func (s *seenTopics) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

// watcher returns the watcher of the member's topics. After each question to Kafka it closes the partitions of topics that were
// created again, and sends to asked, if there is room.
func (m *membership) watcher(asked chan<- struct{}) *topics.Watcher {
	return &topics.Watcher{
		Catalog: m.catalog, Allocator: m.allocator, Frequency: m.group.settings.config.Metadata.RefreshFrequency,
		Asked: func() {
			m.group.seen.add(m.catalog.Partitions())
			select {
			case asked <- struct{}{}:
			default:
			}
			m.checkCluster()
			m.openPartitions.check(m.catalog.ID)
		},
		Forget: m.metrics.forget, Reporter: m.report, Logger: m.log,
	}
}

// zonesFailed reports the error of the ZoneWriter's last look; nil ends it in the log.
func (m *membership) zonesFailed(err error) {
	if err == nil {
		m.group.log.OK(reporting.KindZones, "")
		return
	}
	m.report.Failed(reporting.KindZones, "", err)
}

// reportCommit reports why an offset was not stored. It does not report that the topic is missing, or does not have the partition
// any more: the next opening does. It does not block.
func (m *membership) reportCommit(err error, p kiel.Partition) {
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		m.report.FailedOf(p, reporting.KindCommit, err)
		return
	}
	m.judging.Start(func() {
		if !m.catalog.Explains(m.life, p.Topic, err) && slices.Contains(m.catalog.Partitions()[p.Topic], p.ID) {
			m.report.FailedOf(p, reporting.KindCommit, err)
		}
	})
}

// openPartitions are the open partitions, which are closed when their topic is created again.
type openPartitions struct {
	mu    sync.Mutex
	stops map[*opening]context.CancelCauseFunc // each closes its partition
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

// check closes the partitions whose topic's id has changed (KIP-516).
func (o *openPartitions) check(id func(topic string) sarama.Uuid) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t, stop := range o.stops {
		if !offsets.SameTopic(t.topicID, id(t.tp.Topic)) {
			stop(offsets.Recreated(t.tp.Topic))
		}
	}
}

// RemoveTopic removes all partitions of a topic from the group's set, unless a member asks for the topic by its name. It works
// whether or not Consume or Run is called, needs the session to run, and blocks until the topic is removed or ctx ends. It
// changes neither the topic in Kafka nor the group's offsets.
//
// Nothing leaves the set by itself, because a topic that nobody consumes now may be consumed by a member that is down. So to end
// the consumption of a topic, first stop the members that ask for it, or give them other topics, and then remove it. Members that
// ask for it by patterns alone may stay: if Kafka does not have the topic any more, it is removed for good; else they find it
// again at their next metadata refresh, within a minute.
//
// RemoveTopic returns [ErrTopicInUse], with the name of the member, while there is a member that asks for the topic by its name,
// that asks for all topics, or whose topics are not known, as with members of Python kiel: then use RemovePartitions of
// allocator. It returns [ErrTopicNotInSet] if there is nothing to remove, and kiel.ErrInvalidName for a text that can't be a
// topic's name. Other errors are allocator.ErrSetUnreadable (a set that can't be read is left as it is), the session's, and the
// cause of ctx's end. With session.ErrUncertain the topic may have been removed.
//
// A member that asks for the topic and joins meanwhile adds it again, within a minute. A member that has asked Kafka before the
// topic was deleted there, and has waited for ZooKeeper since, adds it again once. Then the topic is missing in Kafka, and can be
// removed again.
func (g *Group) RemoveTopic(ctx context.Context, topic string) error {
	a, err := allocator.New(g.zk, g.name, g.Member(), allocator.Options{Logger: g.settings.Logger}) // it never runs, so it is no member
	if err != nil {
		return failure("", "", err)
	}
	if err := a.RemoveTopic(ctx, topic); err != nil {
		return failure("", "", err)
	}
	return nil
}
