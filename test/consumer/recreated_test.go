package consumer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
)

// TestRecreatedTopicFromLatestWithOtherOwners: a topic that is created again is read from its first message also from Latest, in
// partitions whose owner has left while the topic was missing, too.
func TestRecreatedTopicFromLatestWithOtherOwners(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.member("a", fromLatest).start(), r.member("b", fromLatest).start()
		until(t, "all is open", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
		time.Sleep(5 * time.Second)
		r.deleteTopic(topic)
		until(t, "all is closed", func() bool { return len(a.owns())+len(b.owns()) == 0 })
		b.leave()
		time.Sleep(10 * time.Second)
		r.createTopic(topic, 4)
		r.produce(10, 0, 1, 2, 3)
		until(t, "all is open again", func() bool { return len(a.owns()) == 4 })
		time.Sleep(time.Minute)
		if n := total(a); n != 40 {
			t.Errorf("%d of 40 messages were read", n)
		}
		quit(a)
		b.close()
	})
}

// TestRecreatedTopicFromLatestWithMorePartitions: the partitions that a topic has more than before it was created again are read
// from their first message, also from Latest and when the member that opens them has joined since.
func TestRecreatedTopicFromLatestWithMorePartitions(t *testing.T) {
	for name, joins := range map[string]bool{"same member": false, "another joins": true} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				a, b := r.member("a", fromLatest).start(), r.member("b", fromLatest)
				until(t, "all is open", func() bool { return len(a.owns()) == 2 })
				time.Sleep(5 * time.Second)
				r.deleteTopic(topic)
				until(t, "all is closed", func() bool { return len(a.owns()) == 0 })
				r.createTopic(topic, 4)
				r.produce(10, 0, 1, 2, 3)
				until(t, "the first are open again", func() bool { return len(a.owns()) == 2 })
				if joins {
					b.start()
				}
				until(t, "all is open again", func() bool { return len(a.owns())+len(b.owns()) == 4 })
				time.Sleep(time.Minute)
				if n := total(a, b); n != 40 {
					t.Errorf("%d of 40 messages were read", n)
				}
				a.leave()
				if joins {
					b.leave()
				}
				a.close()
				b.close()
			})
		})
	}
}

// TestRecreatedTopicWithoutIDs: a topic that is created again is read from its first message, also when nothing tells that it is
// another topic, because Config.Version is older than the topics' ids, and new groups start at the end.
func TestRecreatedTopicWithoutIDs(t *testing.T) {
	for name, c := range map[string]struct {
		missed  bool // the members notice that the topic is missing
		deleted bool // the offsets are deleted with the topic, as Kafka does
		another bool // the owner leaves while the topic is missing
	}{
		"after a while":                         {missed: true},
		"after a while, without offsets":        {missed: true, deleted: true},
		"after a while, and it has a new owner": {missed: true, deleted: true, another: true},
		"at once":                               {},
		"at once, without offsets":              {deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				withoutIDs := func(o *consumer.Options) {
					byConfig(o)
					o.Config.Version = sarama.V2_4_0_0
				}
				r.produce(50, 0)
				a := r.member("a", withoutIDs).start()
				until(t, "a has it", func() bool { return len(a.owns()) == 1 })
				b := r.member("b", withoutIDs).start()
				r.produce(5, 0)
				until(t, "5 messages", func() bool { return total(a, b) == 5 })
				time.Sleep(11 * time.Minute) // the group does not count as beginning any more, and repeats no offset for hours
				owner := a
				if len(b.owns()) == 1 {
					owner = b
				}
				r.deleteTopic(topic)
				if c.missed {
					time.Sleep(time.Minute)
				}
				if c.deleted {
					r.deleteGroup()
				}
				stay, leave := a, b
				if c.another == (owner == a) {
					stay, leave = b, a
				}
				leave.leave()
				r.createTopic(topic, 1)
				r.produce(10, 0)
				time.Sleep(5 * time.Minute)
				if n := total(a, b); n != 15 {
					t.Errorf("%d of 15 messages were read: %v, %v", n, a.errors(), b.errors())
				}
				stay.leave()
				a.close()
				b.close()
			})
		})
	}
}

// TestRecreatedAtOnceWithFewerPartitions: a partition that the topic does not have any more since it was created again, at once,
// is reported once.
func TestRecreatedAtOnceWithFewerPartitions(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "all is open", func() bool { return len(a.owns()) == 4 })
		r.produce(10, 0, 1, 2, 3)
		until(t, "40 messages", func() bool { return total(a) == 40 })
		time.Sleep(5 * time.Second)
		r.deleteTopic(topic)
		r.createTopic(topic, 1)
		time.Sleep(5 * time.Minute)
		unknown := map[int32]int{}
		for _, err := range a.errors() {
			if e, ok := errors.AsType[*sarama.ConsumerError](err); ok && errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				unknown[e.Partition]++
			}
		}
		if unknown[1] != 1 || unknown[2] != 1 || unknown[3] != 1 {
			t.Errorf("errors for each partition: %v", unknown)
		}
		quit(a)
	})
}

// TestNothingIsAddedWithoutKafka: what somebody removes while Kafka does not answer stays removed until it does, because the
// topic may be deleted.
func TestNothingIsAddedWithoutKafka(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "all is open", func() bool { return len(a.owns()) == 2 })
		time.Sleep(time.Second)
		answers := make(chan struct{})
		r.kafka.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			select {
			case <-answers:
				return nil, nil, false
			default:
				r.kafka.KeepControl()
				return nil, errors.New("away"), true
			}
		})
		a.removePartitions(map[string][]int32{topic: {0, 1}})
		time.Sleep(5 * time.Minute)
		if got := r.set(); got != `[]` {
			t.Errorf("the set is %s", got)
		}
		close(answers)
		until(t, "all is open again", func() bool { return len(a.owns()) == 2 })
		quit(a)
	})
}
