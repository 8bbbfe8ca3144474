package consumer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
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
