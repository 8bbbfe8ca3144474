package consumer_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
)

// fill appends n messages of a kilobyte to each of the partitions.
func (r *rig) fill(n int, partitions ...int32) {
	r.t.Helper()
	var records []*kgo.Record
	random := rand.NewChaCha8([32]byte{}) // buffers count bytes as they come, and these can't be compressed
	for _, p := range partitions {
		for range n {
			value := make([]byte, 1000)
			_, _ = random.Read(value)
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: value})
		}
	}
	if err := r.prod.ProduceSync(r.t.Context(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// hanging returns a member whose handler of one partition has its first message and does not return before the gate is open.
func (r *rig) hanging(bufferBytes int) (*member, *prometheus.Registry, *gate) {
	r.t.Helper()
	m, reg := r.watchedMember("a", func(o *consumer.Options) { o.BufferBytes = bufferBytes })
	hung := newGate()
	m.runWith(func(_ context.Context, p *consumer.Partition) error {
		for range p.Messages() {
			hung.wait()
		}
		return nil
	})
	until(r.t, "the handler hangs", func() bool { return hung.waiting.Load() == 1 })
	return m, reg, hung
}

// The lag of partitions whose buffers are full, and of one that is paused, is that of now: in a scrape, in the status, and as the
// handler's partition returns it. Each costs one request to each broker, and nothing is asked for while nobody wants to know.
func TestLagOfWhatIsNotFetched(t *testing.T) {
	for name, isolation := range map[string]sarama.IsolationLevel{"all": sarama.ReadUncommitted, "committed": sarama.ReadCommitted} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 3, func(t *testing.T, r *rig) {
				r.fill(1000, 0, 1, 2)
				m, reg := r.watchedMember("a", func(o *consumer.Options) {
					o.BufferBytes = 512 << 10
					o.Config.Consumer.IsolationLevel = isolation
				})
				hung := newGate()
				defer hung.open()
				parts := make(chan *consumer.Partition, 3)
				m.runWith(func(_ context.Context, p *consumer.Partition) error {
					parts <- p
					for range p.Messages() {
						hung.wait()
					}
					return nil
				})
				until(t, "the handlers hang", func() bool { return hung.waiting.Load() == 3 })
				m.group.Pause(map[string][]int32{topic: {2}})
				time.Sleep(10 * time.Second)
				n := r.observe(kmsg.ListOffsets)
				r.fill(2000, 0, 1, 2)
				time.Sleep(time.Minute)
				if n.Hits() != 0 {
					t.Errorf("asked %d times for what nobody wants to know", n.Hits())
				}
				isLag := func(when string, want float64) {
					t.Helper()
					began := time.Now()
					now := scrape(t, reg)
					if took := time.Since(began); took > 100*time.Millisecond {
						t.Errorf("%s: the scrape took %v", when, took)
					}
					for p := range 3 {
						if lag := now["lag_messages{partition="+string(rune('0'+p))+",topic=t}"]; lag != want {
							t.Errorf("%s: the lag of partition %d is %v, want %v", when, p, lag, want)
						}
					}
				}
				isLag("a minute later", 2999)
				if n.Hits() > 2 {
					t.Errorf("%d requests to 2 brokers", n.Hits())
				}
				r.fill(1000, 0, 1, 2)
				time.Sleep(6 * time.Second)
				for _, p := range m.group.Status().Partitions {
					if p.Offsets == nil || p.Offsets.Lag != 3999 || p.Offsets.End != 4000 {
						t.Errorf("in the status %+v", p.Offsets)
					}
				}
				r.fill(1000, 0, 1, 2)
				time.Sleep(6 * time.Second)
				for range 3 {
					if lag, _ := (<-parts).Lag(); lag != 4999 {
						t.Errorf("Lag returns %d", lag)
					}
				}
				if n.Hits() > 6 {
					t.Errorf("%d requests to 2 brokers for 3 questions", n.Hits())
				}
				hung.open()
				m.leave()
			})
		})
	}
}

// HighWaterMarkOffset has Kafka asked and does not wait: the next call returns the answer.
func TestHighWaterMarkOfAFullBuffer(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.fill(1000, 0)
		m := r.member("a", func(o *consumer.Options) { o.BufferBytes = 256 << 10 })
		var claim atomic.Pointer[sarama.ConsumerGroupClaim]
		hung := newGate()
		defer hung.open()
		m.h.each = func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, _ *sarama.ConsumerMessage) error {
			claim.Store(&c)
			hung.wait()
			return nil
		}
		m.start()
		until(t, "the handler hangs", func() bool { return hung.waiting.Load() == 1 })
		time.Sleep(10 * time.Second)
		r.fill(2000, 0)
		time.Sleep(6 * time.Second)
		c := *claim.Load()
		began := time.Now()
		c.HighWaterMarkOffset()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
		time.Sleep(time.Second)
		if end := c.HighWaterMarkOffset(); end != 3000 {
			t.Errorf("the high watermark is %d, want 3000", end)
		}
		hung.open()
		m.leave()
	})
}

// The lag of a partition whose buffer is full is that of now after its leader has moved, too: no fetch notices the move.
func TestLagAfterTheLeaderHasMoved(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.fill(1000, 0)
		m, reg, hung := r.hanging(512 << 10)
		defer hung.open()
		for to := range int32(2) { // one of them is not the leader now
			if err := r.kafka.MoveTopicPartition(topic, 0, to); err != nil {
				t.Fatal(err)
			}
			r.fill(1000, 0)
			time.Sleep(6 * time.Second)
			if lag, want := scrape(t, reg)["lag_messages{partition=0,topic=t}"], float64(1999+1000*to); lag != want {
				t.Errorf("after the move to broker %d the lag is %v, want %v", to, lag, want)
			}
		}
		hung.open()
		m.leave()
	})
}

// A scrape does not wait for long for brokers that do not answer.
func TestScrapeWhileBrokersAreSilent(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.fill(1000, 0)
		m, reg, hung := r.hanging(256 << 10)
		defer hung.open()
		time.Sleep(10 * time.Second)
		r.fill(2000, 0)
		r.kafka.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.SleepControl(func() { time.Sleep(3 * time.Second) })
			return nil, nil, false
		})
		began := time.Now()
		for range 10 {
			if lag := scrape(t, reg)["lag_messages{partition=0,topic=t}"]; lag != 999 {
				t.Errorf("the lag is %v before Kafka has answered", lag)
			}
		}
		if took := time.Since(began); took > 600*time.Millisecond {
			t.Errorf("10 scrapes took %v", took)
		}
		time.Sleep(3 * time.Second)
		if lag := scrape(t, reg)["lag_messages{partition=0,topic=t}"]; lag != 2999 {
			t.Errorf("the lag is %v after Kafka has answered", lag)
		}
		hung.open()
		m.leave()
	})
}
