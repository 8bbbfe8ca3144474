package consumer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
)

func fromLatest(o *consumer.Options) {
	o.StartAt, o.Config.Consumer.Offsets.Initial = consumer.Latest, sarama.OffsetNewest
}

// byConfig leaves it to sarama's default where a new group starts.
func byConfig(o *consumer.Options) { o.Config.Consumer.Offsets.Initial = sarama.OffsetNewest }

// A group that starts at the end, by From or by its Config, reads nothing old, whichever of its members opens which partition
// first.
func TestFirstStartFromLatestReadsNothingOld(t *testing.T) {
	for name, change := range map[string]func(*consumer.Options){"From": fromLatest, "Config": byConfig} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 8, func(t *testing.T, r *rig) {
				r.produce(10, 0, 1, 2, 3, 4, 5, 6, 7)
				a, b := r.member("a", change).start(), r.member("b", change).start()
				until(t, "all partitions are open", func() bool { return len(a.owns())+len(b.owns()) == 8 && len(b.owns()) == 4 })
				time.Sleep(time.Minute)
				if n := total(a, b); n != 0 {
					t.Errorf("%d old messages were read", n)
				}
				r.produce(1, 0, 1, 2, 3, 4, 5, 6, 7)
				until(t, "what is new", func() bool { return total(a, b) == 8 })
				quit(a, b)
			})
		})
	}
}

// A member that begins is handed the messages that have come since the group began, in partitions that were not opened before.
func TestWhatComesWhileAGroupBeginsIsRead(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		away := r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: topic, Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
		a := r.member("a", byConfig).start()
		until(t, "one is open", func() bool { return r.committed(topic, 0) == 10 })
		time.Sleep(time.Second)
		r.produce(5, 0, 1)
		until(t, "5 messages", func() bool { return total(a) == 5 })
		if got := r.committed(topic, 1); got != -1 {
			t.Fatalf("%d is stored for the partition that is not open", got)
		}
		quit(a)
		away.Remove()
		b := r.member("b", byConfig).start()
		until(t, "b has the partition that was never open", func() bool { return len(b.h.offsets(topic, 1)) > 0 })
		time.Sleep(time.Minute)
		if got := b.h.offsets(topic, 1); len(got) != 5 || got[0] != 10 {
			t.Errorf("b has read %v, want 10 to 14", got)
		}
		quit(b)
	})
}

// A new group starts at the end that it has found first, also if it can't commit that for a while, here because of members of
// Kafka's own.
func TestWhatComesUntilANewGroupMayCommitIsRead(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		leave := r.joinKafkaGroup()
		a := r.member("a", byConfig).start()
		until(t, "commits are refused", func() bool {
			return slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrGroupInUse) })
		})
		r.produce(5, 0)
		time.Sleep(time.Minute)
		if len(a.owns()) > 0 {
			t.Error("a is open beside Kafka's own members")
		}
		leave()
		until(t, "it is open", func() bool { return len(a.owns()) == 1 })
		time.Sleep(time.Minute)
		if got := a.h.offsets(topic, 0); len(got) != 5 || got[0] != 10 {
			t.Errorf("a has read %v, want 10 to 14", got)
		}
		quit(a)
	})
}

// A partition without an offset starts at its first message in a group that has worked on the topic: the offset was deleted, or
// has expired. A group of which all offsets were deleted begins anew.
func TestDeletedOffsetFromLatest(t *testing.T) {
	for name, all := range map[string]bool{"of one partition": false, "of all": true} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(10, 0, 1)
				a := r.member("a", byConfig).start()
				until(t, "both are open", func() bool { return r.committed(topic, 0) == 10 && r.committed(topic, 1) == 10 })
				time.Sleep(time.Hour)
				quit(a)
				r.produce(5, 0, 1)
				r.deleteOffset(1)
				want := 5 + 15
				if all {
					r.deleteOffset(0)
					want = 0
				}
				b := r.member("b", byConfig).start()
				until(t, "both are open", func() bool { return len(b.owns()) == 2 })
				time.Sleep(time.Minute)
				if n := total(b); n != want {
					t.Errorf("%d messages, want %d", n, want)
				}
				quit(b)
			})
		})
	}
}

// A partition that the topic got after the group had started on it is read from its first message, also when the group was away
// meanwhile, and when the topic grew before; metadata of an older version, without the number of partitions, are read.
func TestNewPartitionsFromLatestStartAtTheirFirstMessage(t *testing.T) {
	for name, away := range map[string]bool{"while the group consumes": false, "while the group is away": true} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(10, 0, 1)
				a := r.member("a", fromLatest).start()
				until(t, "both partitions are open", func() bool { return len(a.owns()) == 2 })
				time.Sleep(time.Second)
				for i, to := range []int32{3, 5} {
					if away {
						a.leave()
					}
					r.grow(to)
					if i == 0 {
						r.produce(10, 2)
					} else {
						r.produce(10, 3, 4)
					}
					if away {
						a.start()
					}
					until(t, "all of the new partitions", func() bool { return total(a) == []int{10, 30}[i] })
					r.commitAs("kiel1;;1;", 0, 10) // as an older version would
				}
				a.leave()
				for p, c := range r.kafka.GroupInfo(group).Commits[topic] {
					if p > 0 && !strings.Contains(c.Metadata, "/2;") {
						t.Errorf("%s:%d: metadata %q do not say that the group started on 2 partitions", topic, p, c.Metadata)
					}
				}
				a.close()
			})
		})
	}
}
