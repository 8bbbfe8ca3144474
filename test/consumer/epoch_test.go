package consumer_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
)

// committedEpoch returns the leader epoch that is stored with the offset of a partition.
func (r *rig) committedEpoch(p int32) int32 {
	r.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	of := kmsg.NewOffsetFetchRequestGroupTopic()
	of.Topic, of.TopicID, of.Partitions = topic, r.kafka.TopicInfo(topic).TopicID, []int32{p}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.Topics = group, append(g.Topics, of)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(r.t.Context(), r.prod)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.Groups[0].Topics[0].Partitions[0].LeaderEpoch
}

// The leader epoch is stored with the position. An owner that finds another one in the log before its start reads again what was
// written anew.
func TestLeaderEpochIsCommitted(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		leader := r.kafka.LeaderFor(topic, 0)
		for _, to := range []int32{1 - leader, leader} {
			if err := r.kafka.MoveTopicPartition(topic, 0, to); err != nil {
				t.Fatal(err)
			}
		}
		r.produce(100, 0)
		a := r.member("a", nil).start()
		until(t, "100 messages", func() bool { return total(a) == 100 })
		time.Sleep(2 * time.Second)
		a.leave()
		epoch := r.kafka.PartitionInfo(topic, 0).Epoch
		if got := r.committedEpoch(0); got != epoch || epoch < 2 {
			t.Errorf("stored with leader epoch %d, want %d", got, epoch)
		}

		b := r.member("b", nil).start()
		until(t, "b has the partition", func() bool { return len(b.owns()) == 1 })
		time.Sleep(2 * time.Second)
		b.leave()
		if errs := b.errors(); len(errs) > 0 || total(b) > 0 || r.committedEpoch(0) != epoch {
			t.Errorf("b read %d messages, stored epoch %d, reported %v", total(b), r.committedEpoch(0), errs)
		}

		r.commitWith("kiel1;;1;", 0, 90, epoch-1) // by one who read before the election
		c := r.member("c", nil).start()
		until(t, "100 messages again", func() bool { return total(c) == 100 })
		time.Sleep(2 * time.Second)
		c.leave()
		if !slices.ContainsFunc(c.errors(), func(err error) bool { return errors.Is(err, consumer.ErrOffsetReset) }) {
			t.Errorf("c reported %v", c.errors())
		}
		if got, at := r.committedEpoch(0), r.committed(topic, 0); got != epoch || at != 100 {
			t.Errorf("stored %d with epoch %d", at, got)
		}
		a.close()
		b.close()
		c.close()
	})
}
