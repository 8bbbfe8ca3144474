package consumer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
)

// With Fence a program stores offsets itself: a partition that it has finished has no lag while its database is away.
func TestLagWithFence(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		var broken atomic.Bool
		m, reg := r.watchedMember("a", func(o *consumer.Options) {
			o.ReopenPartition = true
			o.Config.Consumer.Offsets.AutoCommit.Enable = false
			o.Fence = func(context.Context, string, int32) error {
				if broken.Load() {
					return errBroken
				}
				return nil
			}
		})
		r.produce(10, 0)
		var got atomic.Int64
		m.runWith(func(_ context.Context, p *consumer.Partition) error {
			for range p.Messages() {
				if got.Add(1); broken.Load() {
					return errBroken
				}
			}
			return nil
		})
		until(t, "all is read", func() bool { return got.Load() == 10 })
		r.commitAs("", 0, 11) // as the program's transaction does
		broken.Store(true)
		r.produce(1, 0)
		until(t, "it has failed", func() bool { return got.Load() == 11 })
		time.Sleep(5 * time.Minute)
		if n, ok := scrape(t, reg)["lag_messages{partition=0,topic=t}"]; !ok || n != 0 {
			t.Errorf("%v wait (%v), %v are committed of 11: %+v", n, ok, r.committed(topic, 0), partitionOf(t, m, 0).Offsets)
		}
		m.leave()
	})
}

// A partition that can't be opened because its offset is not in the log is not one where nothing waits.
func TestLagOfAnOffsetThatIsNotInTheLog(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		r.commitAs("", 0, 1000)
		m, reg := r.watchedMember("a", func(o *consumer.Options) { o.Config.Consumer.Group.ResetInvalidOffsets = false })
		m.start()
		time.Sleep(5 * time.Minute)
		if n, ok := scrape(t, reg)["lag_messages{partition=0,topic=t}"]; ok {
			t.Errorf("%v wait: %+v", n, partitionOf(t, m, 0).Offsets)
		}
		m.leave()
	})
}

// The offset that is stored of a topic which was created again is not where its partitions go on: nothing is known of how many
// wait.
func TestLagByAFormerTopic(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.used()
		stored := r.kafka.GroupInfo(group).Commits[topic][0]
		r.deleteTopic(topic)
		r.createTopic(topic, 2)
		r.commitAs(stored.Metadata, 0, 7) // as a commit that was on its way
		r.produce(20, 0, 1)
		m, reg := r.watchedMember("a", func(o *consumer.Options) {
			o.Fence = func(context.Context, string, int32) error { return errBroken }
		})
		m.start()
		time.Sleep(5 * time.Minute)
		if n, ok := scrape(t, reg)["lag_messages{partition=0,topic=t}"]; ok || partitionOf(t, m, 0).Offsets != nil {
			t.Errorf("%v wait: %+v", n, partitionOf(t, m, 0).Offsets)
		}
		m.leave()
	})
}
