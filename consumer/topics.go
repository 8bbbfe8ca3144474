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
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/pause"
)

// watchEvery is the time between two metadata refreshes, if the configuration does not ask for more. A refresh looks for new
// partitions, for partitions that the group's set lacks, and for topics that were deleted or created again.
const watchEvery = time.Minute

// watchRetry is how often the member asks again while Kafka does not answer. So the log and the metrics show when Kafka is back,
// even if nothing else asks it.
const watchRetry = 5 * time.Second

// watchTopics asks Kafka for the topics again and again until ctx ends. It adds the partitions that the set lacks, and closes the
// partitions of topics that were created again. After each question it sends to asked, if there is room.
func (m *membership) watchTopics(ctx context.Context, asked chan<- struct{}) {
	every := watchEvery
	if f := m.group.settings.config.Metadata.RefreshFrequency; f > 0 {
		every = min(every, f)
	}
	for m.awaitLook(ctx, every) == nil {
		if err := m.catalog.look(ctx); err == nil {
			m.group.log.OK(kindMetadata, "")
		} else if ctx.Err() == nil {
			m.group.failed(kindMetadata, "", err)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		m.checkCluster()
		m.openPartitions.check(m.catalog.id)
		m.forgetRemoved()
		m.addLacking(ctx)
	}
}

// awaitLook waits for the time of the next look, or until ctx ends. Up to a quarter of the time is left out at random, so that
// members that have joined together do not look together.
func (m *membership) awaitLook(ctx context.Context, every time.Duration) error {
	due := time.Now().Add(pause.Early(every, every/4))
	for {
		if err := pause.Sleep(ctx, min(time.Until(due), pause.Early(watchRetry, watchRetry/4))); err != nil {
			return err
		}
		if m.catalog.isUnanswered() || !time.Now().Before(due) {
			return nil
		}
	}
}

// addLacking adds the partitions that the set lacks, in one write. It adds none of a topic that is missing in Kafka: whoever
// removes the partitions of such a topic means that.
func (m *membership) addLacking(ctx context.Context) {
	lacking := m.allocator.LackingPartitions(m.catalog.present())
	if len(lacking) == 0 {
		m.group.log.OK(kindSet, "")
		return
	}
	if err := m.allocator.AddPartitions(ctx, lacking); err != nil {
		if ctx.Err() == nil {
			m.group.failed(kindSet, "", err)
		}
		return // the next look adds them
	}
	m.group.log.OK(kindSet, "")
	n := 0
	for _, ids := range lacking {
		n += len(ids)
	}
	m.log.InfoContext(ctx, "partitions added to the set", "topics", slices.Sorted(maps.Keys(lacking)), "partitions", n)
}

// onMissing reports that Kafka does not have a topic any more, or logs that it is back.
func (m *membership) onMissing(topic string, missing bool) {
	if missing {
		m.metrics.missing.WithLabelValues(labelOf(topic)).Inc()
		m.group.failed(kindMissing, topic, failure("", "", fmt.Errorf("%w: %s: its partitions wait until it is created again", ErrTopicMissing, topic)))
		return
	}
	m.metrics.missing.WithLabelValues(labelOf(topic)).Dec()
	m.log.Info("topic is back in Kafka", "topic", topic)
	m.group.log.OK(kindMissing, topic)
}

// onGrew logs that a topic has more partitions than before.
func (m *membership) onGrew(topic string, from, to int) {
	m.log.Info("topic grew", "topic", topic, "partitions_before", from, "partitions", to)
}

// forgetMissing removes this member's missing topics from the metrics, when the membership ends.
func (m *membership) forgetMissing() {
	for topic := range m.catalog.missingTopics() {
		m.metrics.missing.WithLabelValues(labelOf(topic)).Dec()
	}
}

// missingLately is how long errors may still be caused by a topic that was missing and is back: a fetch fails for 10 s before its
// partition is closed, and then the last commit is tried for a while.
const missingLately = 30 * time.Second

// isMissing returns whether err says that Kafka does not have a topic, and the topic is or was missing, which was reported then.
func (m *membership) isMissing(ctx context.Context, topic string, err error) bool {
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return false
	}
	_ = m.catalog.refresh(ctx, time.Second) // the older metadata are good enough
	return m.catalog.isMissing(topic) || m.catalog.wasMissing(topic)
}

// reportCommit reports why an offset was not stored. It does not report that the topic is missing, or does not have the partition
// any more: the next opening does. It does not block.
func (m *membership) reportCommit(err error, p kiel.Partition) {
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		m.failed(kindCommit, err, p)
		return
	}
	m.judging.Start(func() {
		if !m.isMissing(m.life, p.Topic, err) && slices.Contains(m.catalog.partitions()[p.Topic], p.ID) {
			m.failed(kindCommit, err, p)
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
// topic's name. Other errors are sharedset's (a set that can't be read is left as it is), the session's, and the cause of ctx's
// end. With session.ErrUncertain the topic may have been removed.
//
// A member that asks for the topic and joins meanwhile adds it again, within a minute. A member that has asked Kafka before the
// topic was deleted there, and has waited for ZooKeeper since, adds it again once. Then the topic is missing in Kafka, and can be
// removed again.
func (g *Group) RemoveTopic(ctx context.Context, topic string) error {
	a, err := allocator.New(g.zk, g.name, g.Name(), allocator.Options{Logger: g.settings.Logger}) // it never runs, so it is no member
	if err != nil {
		return failure("", "", err)
	}
	if err := a.RemoveTopic(ctx, topic); err != nil {
		return failure("", "", err)
	}
	return nil
}
