package consumer_test

import (
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
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
