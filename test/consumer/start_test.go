package consumer_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/zktest"
)

// The high watermark is right in the first moment of ConsumeClaim, though a leader that has just started does not know it yet.
func TestHighWaterMarkOfALeaderThatHasJustStarted(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		var answered atomic.Int32
		r.kafka.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			req := kreq.(*kmsg.FetchRequest)
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			for _, of := range req.Topics {
				topic := kmsg.NewFetchResponseTopic()
				topic.Topic, topic.TopicID = of.Topic, of.TopicID
				for _, p := range of.Partitions {
					part := kmsg.NewFetchResponseTopicPartition()
					part.Partition, part.HighWatermark, part.LastStableOffset = p.Partition, 0, 0
					topic.Partitions = append(topic.Partitions, part)
				}
				resp.Topics = append(resp.Topics, topic)
			}
			answered.Add(1)
			return resp, nil, true
		})
		var claims atomic.Int32
		a := r.member("a", nil)
		a.startWith(funcs{
			claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				claims.Add(1)
				if got := c.HighWaterMarkOffset(); got != 10 {
					t.Errorf("%s:%d: the high watermark is %d", c.Topic(), c.Partition(), got)
				}
				return a.h.ConsumeClaim(s, c)
			},
		}, topic)
		until(t, "20 messages", func() bool { return total(a) == 20 })
		quit(a)
		if answered.Load() != 1 || claims.Load() != 2 {
			t.Errorf("%d answers of a leader that has just started, %d claims", answered.Load(), claims.Load())
		}
	})
}

// A member that starts asks ZooKeeper for nothing about its group before Kafka has answered all that decides whether it joins.
// Then it lists members and records at the same time, and joins: its znode exists a request and a half to ZooKeeper later.
func TestStartOfAMember(t *testing.T) {
	const kafkaTrip = 5 * time.Millisecond
	inRig(t, 8, func(t *testing.T, r *rig) {
		b := r.member("b", nil).run()
		until(t, "b owns all", func() bool { return len(b.owns()) == 8 })
		time.Sleep(10 * time.Second)
		a := r.member("a", nil)
		a.net.Delay(zookeeperTrip / 2)
		time.Sleep(time.Second)

		began, first, joined, answered := time.Now(), time.Duration(0), time.Duration(0), time.Duration(0)
		asked := 0
		r.zk.SetHook(func(q *zktest.Request) zktest.Action {
			if q.Client == "a" && q.Op != zktest.OpPing && first == 0 {
				first = time.Since(began)
			}
			if q.Client == "a" && joined == 0 && slices.ContainsFunc(q.Ops, func(op zktest.Request) bool { return op.Path == "/kiel/groups/g/members/a" }) {
				joined = time.Since(began)
			}
			return zktest.Action{}
		})
		r.kafka.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.KeepControl()
			decides := slices.Contains([]kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.OffsetFetch}, kmsg.Key(req.Key()))
			if decides && joined == 0 { // later sarama holds a lock until the answer is there, for which others wait
				asked++
				r.kafka.SleepControl(func() { time.Sleep(kafkaTrip) })
				answered = time.Since(began)
			}
			return nil, nil, false
		})
		a.run()
		until(t, "a owns half", func() bool { return len(a.owns()) == 4 })
		r.zk.SetHook(nil)
		t.Logf("%d requests to Kafka, answered after %v, to ZooKeeper from %v on, joined after %v", asked, answered, first, joined)
		if first < answered {
			t.Errorf("ZooKeeper was asked after %v, before Kafka had answered after %v", first, answered)
		}
		if want := answered + zookeeperTrip/2 + zookeeperTrip; joined > want {
			t.Errorf("joined after %v, want %v", joined, want)
		}
		quit(a, b)
	})
}
