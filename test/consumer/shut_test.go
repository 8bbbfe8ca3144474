package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/status"
)

// A partition that is owned and not open has a lag: from the committed offset to the end, which is read once a minute. While all
// are open nothing is asked for.
func TestLagOfAPartitionThatIsNotOpen(t *testing.T) {
	const lag, behind = "lag_messages{partition=1,topic=t}", "lag_seconds{partition=1,topic=t}"
	inRig(t, 4, func(t *testing.T, r *rig) {
		var broken atomic.Bool
		member := func(name string) (*member, func() series) {
			m, reg := r.watchedMember(name, func(o *consumer.Options) {
				o.Fence = func(_ context.Context, _ string, partition int32) error {
					if broken.Load() && partition == 1 {
						return errBroken
					}
					return nil
				}
			})
			m.start()
			return m, func() series { return scrape(t, reg) }
		}
		r.produce(10, 0, 1)
		m, _ := member("a")
		until(t, "all is read, and all are open", func() bool { return total(m) == 20 && len(m.owns()) == 4 })
		time.Sleep(time.Second) // what an opening asks for
		asked := r.observe(kmsg.ListOffsets)
		time.Sleep(10 * time.Minute)
		if n := asked.Hits(); n > 0 {
			t.Errorf("%d requests for ends while all is well", n)
		}
		m.leave()

		broken.Store(true)
		m, now := member("b")
		until(t, "three are open", func() bool { return len(m.owns()) == 3 })
		asked = r.observe(kmsg.ListOffsets)
		time.Sleep(150 * time.Second)
		now().is(t, "nothing new waits", series{lag: 0, behind: 0, "lag_messages{partition=0,topic=t}": 0})
		r.produce(3, 1)
		time.Sleep(10 * time.Minute)
		s := now()
		s.is(t, "some wait", series{lag: 3})
		if age := s[behind]; age < 530 || age > 600 {
			t.Errorf("they have waited for %v s", age)
		}
		if n := asked.Hits(); n < 11 || n > 13 {
			t.Errorf("%d requests for ends in 12.5 minutes, want one a minute", n)
		}
		if o := partitionOf(t, m, 1).Offsets; o == nil || o.Committed != 10 || o.Position != 10 || o.End != 13 || o.Lag != 3 || o.LagSeconds < 530 {
			t.Errorf("offsets %+v", o)
		}
		broken.Store(false)
		until(t, "it is open", func() bool { return len(m.owns()) == 4 })
		now().is(t, "it is open", series{lag: 0})
		m.leave()
		if s := now(); len(s) > 0 {
			if _, ok := s[lag]; ok {
				t.Error("a member that has left has a lag")
			}
		}
	})
}

// A partition whose handler fails has a lag at any moment, and its status has the offset that fails, whatever follows the error.
func TestLagOfAHandlerThatFails(t *testing.T) {
	const lag, behind = "lag_messages{partition=0,topic=t}", "lag_seconds{partition=0,topic=t}"
	for name, reopens := range map[string]bool{"opened again": true, "Consume called again": false} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				r.produce(10, 0)
				m, reg := r.watchedMember("a", func(o *consumer.Options) { o.ReopenPartition = reopens })
				m.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, msg *sarama.ConsumerMessage) error {
					if msg.Offset == 6 {
						return errBroken
					}
					s.MarkMessage(msg, "")
					return nil
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					var err error
					for ctx.Err() == nil && err == nil {
						err = m.group.Consume(ctx, []string{topic}, m.h)
					}
					done <- err
				}()
				time.Sleep(2 * time.Minute)
				asked := r.observe(kmsg.ListOffsets)
				for i := range 100 {
					time.Sleep(time.Duration(1700+17*i) * time.Millisecond)
					s := scrape(t, reg)
					if n := s[lag]; n < 3 || n > 4 || s[behind] < 115 {
						t.Fatalf("look %d: %v wait, for %v s", i, n, s[behind])
					}
					o := partitionOf(t, m, 0).Offsets
					if o == nil || o.Committed != 6 || o.End != 10 {
						t.Fatalf("look %d: offsets %+v", i, o)
					}
				}
				if n := asked.Hits(); n > 4 {
					t.Errorf("%d requests for ends", n)
				}
				stop()
				if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if n := len(m.group.Status().Partitions); n > 0 {
					t.Errorf("%d partitions when it has left", n)
				}
			})
		})
	}
}

// A resting partition's status says why its handler rests.
func TestRestingSaysWhy(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		m, _ := r.watchedMember("a", func(o *consumer.Options) { o.ReopenPartition = true })
		m.runWith(func(context.Context, *consumer.Partition) error { return errBroken })
		until(t, "it rests", func() bool {
			ps := m.group.Status().Partitions
			return len(ps) == 1 && ps[0].State == status.Resting
		})
		if got := partitionOf(t, m, 0).WaitsFor; !strings.HasPrefix(got, "a pause after its handler returned: ") || !strings.HasSuffix(got, errBroken.Error()) {
			t.Errorf("it waits for %q", got)
		}
		m.leave()
	})
}
