package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
)

// ErrMissing says that a topic is not in Kafka any more.
var ErrMissing = errors.New("the topic is not in Kafka any more")

// WatchEvery is the time between two metadata refreshes, if the configuration does not ask for more. A refresh looks for new
// partitions, for partitions that the group's set lacks, and for topics that were deleted or created again.
const WatchEvery = time.Minute

// watchRetry is how often the member asks again while Kafka does not answer. So the log and the metrics show when Kafka is back,
// even if nothing else asks it.
const watchRetry = 5 * time.Second

// Watcher asks Kafka for the topics of a Catalog again and again, and adds the partitions that the group's set lacks.
type Watcher struct {
	Catalog   *Catalog
	Allocator *allocator.PartitionAllocator
	Frequency time.Duration      // the longest time between two questions, if that is less than a minute; 0 is a minute
	Asked     func()             // called after each question
	Forget    func(topic string) // called when somebody has removed a missing topic from the set, so that nothing is known of it any more
	Reporter  *reporting.Reporter
	Logger    *slog.Logger
}

// Run returns when ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	every := WatchEvery
	if w.Frequency > 0 {
		every = min(every, w.Frequency)
	}
	for w.await(ctx, every) == nil {
		if err := w.Catalog.Look(ctx); err == nil {
			w.Reporter.Log.OK(reporting.KindMetadata, "")
		} else if ctx.Err() == nil {
			w.Reporter.Failed(reporting.KindMetadata, "", err)
		}
		w.Asked()
		w.forgetRemoved()
		w.addLacking(ctx)
	}
}

// await waits for the time of the next question, or until ctx ends. Up to a quarter of the time is left out at random, so that
// members that have joined together do not ask together.
func (w *Watcher) await(ctx context.Context, every time.Duration) error {
	due := time.Now().Add(pause.Early(every, every/4))
	for {
		if err := pause.Sleep(ctx, min(time.Until(due), pause.Early(watchRetry, watchRetry/4))); err != nil {
			return err
		}
		if w.Catalog.isUnanswered() || !time.Now().Before(due) {
			return nil
		}
	}
}

// addLacking adds the partitions that the set lacks, in one write. It adds none of a topic that is missing in Kafka: whoever
// removes the partitions of such a topic means that.
func (w *Watcher) addLacking(ctx context.Context) {
	lacking := w.Allocator.LackingPartitions(w.Catalog.present())
	if len(lacking) == 0 {
		w.Reporter.Log.OK(reporting.KindSet, "")
		return
	}
	if err := w.Allocator.AddPartitions(ctx, lacking); err != nil {
		if ctx.Err() == nil {
			w.Reporter.Failed(reporting.KindSet, "", err)
		}
		return // the next look adds them
	}
	w.Reporter.Log.OK(reporting.KindSet, "")
	n := 0
	for _, ids := range lacking {
		n += len(ids)
	}
	w.Logger.InfoContext(ctx, "partitions added to the set", "topics", slices.Sorted(maps.Keys(lacking)), "partitions", n)
}

// forgetRemoved drops the topics that patterns have found, that Kafka does not have any more, and that were removed from the set.
func (w *Watcher) forgetRemoved() {
	s := w.Allocator.Snapshot()
	if s == nil {
		return
	}
	for topic := range w.Catalog.missingTopics() {
		inSet := slices.ContainsFunc(s.Partitions, func(p kiel.Partition) bool { return p.Topic == topic }) || slices.Contains(s.Unwanted, topic)
		if !inSet && w.Catalog.forget(topic) {
			w.Forget(topic)
			w.Logger.Info("missing topic forgotten", "topic", topic)
		}
	}
}

// onMissing reports that Kafka does not have a topic any more, or logs that it is back.
func (c *Catalog) onMissing(topic string, missing bool) {
	if missing {
		c.Missing(topic, 1)
		err := fmt.Errorf("%w: %s: its partitions wait until it is created again", ErrMissing, topic)
		c.Reporter.Failed(reporting.KindMissing, topic, operr.New("consumer", "", "", err))
		return
	}
	c.Missing(topic, -1)
	c.Logger.Info("topic is back in Kafka", "topic", topic)
	c.Reporter.Log.OK(reporting.KindMissing, topic)
}

// onGrew logs that a topic has more partitions than before.
func (c *Catalog) onGrew(topic string, before, after int) {
	c.Logger.Info("topic grew", "topic", topic, "partitions_before", before, "partitions", after)
}

// End removes the missing topics from their number, when the membership ends.
func (c *Catalog) End() {
	for topic := range c.missingTopics() {
		c.Missing(topic, -1)
	}
}

// missingLately is how long errors may still be caused by a topic that was missing and is back: a fetch fails for 10 s before its
// partition is closed, and then the last commit is tried for a while.
const missingLately = 30 * time.Second

// Explains reports whether err says that Kafka does not have a topic, and the topic is or was missing, which was reported then.
// It may ask Kafka.
func (c *Catalog) Explains(ctx context.Context, topic string, err error) bool {
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return false
	}
	_ = c.Refresh(ctx, time.Second) // the older metadata are good enough
	return c.IsMissing(topic) || c.wasMissing(topic)
}
