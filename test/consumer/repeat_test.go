package consumer_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
)

// commitAs stores an offset as another program, or as a member of the group would that is known by its metadata.
func (r *rig) commitAs(metadata string, p int32, offset int64) {
	r.t.Helper()
	r.commitWith(metadata, p, offset, -1)
}

// commitWith is commitAs with a leader epoch.
func (r *rig) commitWith(metadata string, p int32, offset int64, epoch int32) {
	r.t.Helper()
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.LeaderEpoch, part.Metadata = p, offset, epoch, &metadata
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic, of.TopicID, of.Partitions = topic, r.kafka.TopicInfo(topic).TopicID, append(of.Partitions, part)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.Topics = group, -1, append(req.Topics, of)
	resp, err := req.RequestWith(r.t.Context(), r.prod)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// deleteGroup deletes the group's offsets, as Kafka's tools do.
func (r *rig) deleteGroup() {
	r.t.Helper()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(r.t.Context(), r.prod)
	if err == nil {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// deleteOffset deletes the offset of one partition, as Kafka's tools do.
func (r *rig) deleteOffset(p int32) {
	r.t.Helper()
	part := kmsg.NewOffsetDeleteRequestTopicPartition()
	part.Partition = p
	of := kmsg.NewOffsetDeleteRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, part)
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group, req.Topics = group, append(req.Topics, of)
	resp, err := req.RequestWith(r.t.Context(), r.prod)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// The commits that an owner repeats raise what a late commit of an owner before has lowered, and leave alone what another program
// has stored.
func TestRepeatsLowerNoOffset(t *testing.T) {
	inRig(t, 3, func(t *testing.T, r *rig) {
		r.produce(100, 0, 1, 2)
		var log bytes.Buffer
		a := r.member("a", func(o *consumer.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		a.start()
		until(t, "300 messages", func() bool { return total(a) == 300 })
		time.Sleep(2 * time.Second) // all is committed
		r.commitAs("kiel1;;1;", 0, 30)
		r.commitAs("", 1, 50)
		r.commitAs("of another program", 2, 150)
		time.Sleep(15 * time.Minute)
		for p, want := range []int64{100, 50, 150} {
			if got := r.committed(topic, int32(p)); got != want {
				t.Errorf("%s:%d: committed %d, want %d", topic, p, got, want)
			}
		}
		a.leave()
		for p, want := range []int64{100, 50, 150} {
			if got := r.committed(topic, int32(p)); got != want {
				t.Errorf("%s:%d: committed %d at the end, want %d", topic, p, got, want)
			}
		}
		a.close()
		if n := strings.Count(log.String(), "another program are not kept alive"); n != 1 {
			t.Errorf("it was logged %d times that offsets are left alone:\n%s", n, log.String())
		}
	})
}

// A group whose offsets were deleted while it consumed has them again when its members have left.
func TestDeletedGroupIsRestored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 8
		r := newRig(t, n)
		r.produce(10, 0, 1, 2, 3, 4, 5, 6, 7)
		a := r.member("a", nil).start()
		until(t, "all messages", func() bool { return total(a) == 10*n })
		time.Sleep(2 * time.Second)
		a.leave()
		b := r.member("b", nil).start() // marks nothing
		until(t, "b has all partitions", func() bool { return len(b.owns()) == n })
		time.Sleep(2 * time.Second)
		r.deleteGroup()
		b.leave()
		for p := range int32(n) {
			if got := r.committed(topic, p); got != 10 {
				t.Errorf("%s:%d: committed %d, want 10", topic, p, got)
			}
		}
		a.close()
		b.close()
	})
}

// Offsets that are deleted while the group consumes are back when their owner looks, if nothing is marked before: 10 s, a minute
// and 10 minutes after it has opened the partition, and then every 6 hours.
func TestDeletedOffsetsComeBack(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		a := r.member("a", func(o *consumer.Options) { o.Config.Consumer.MaxWaitTime = 30 * time.Second })
		a.start()
		until(t, "10 messages", func() bool { return total(a) == 10 })
		opened := time.Now()
		for _, c := range []struct{ deleted, back time.Duration }{
			{5 * time.Second, 10 * time.Second},
			{30 * time.Second, time.Minute},
			{5 * time.Minute, 10 * time.Minute},
			{time.Hour, 6*time.Hour + 10*time.Minute},
		} {
			time.Sleep(time.Until(opened.Add(c.deleted)))
			r.deleteGroup()
			time.Sleep(time.Until(opened.Add(c.back - 2*time.Second)))
			if got := r.committed(topic, 0); got != -1 {
				t.Errorf("deleted after %v: %d is stored too early", c.deleted, got)
			}
			time.Sleep(4 * time.Second)
			if got := r.committed(topic, 0); got != 10 {
				t.Errorf("deleted after %v: %d is stored after %v", c.deleted, got, c.back)
			}
		}
		a.leave()
	})
}
