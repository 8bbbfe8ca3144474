package realkafka_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers"
)

// byDefault is sarama's default configuration, but for the version.
func byDefault() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Consumer.Return.Errors = true
	return c
}

// theirs is a member of a group of sarama, with byDefault, until stop is called.
func (r *rig) theirs(group string, topics ...string) (m *member, stop func()) {
	r.t.Helper()
	g, err := sarama.NewConsumerGroup(r.brokers, group, byDefault())
	if err != nil {
		r.t.Fatal(err)
	}
	m = &member{t: r.t}
	m.wg.Go(func() {
		for err := range g.Errors() {
			r.t.Errorf("sarama: %v", err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, topics, m); err != nil && !errors.Is(err, context.Canceled) {
				r.t.Errorf("sarama: %v", err)
				return
			}
		}
	}()
	return m, func() {
		cancel()
		<-done
		if err := g.Close(); err != nil {
			r.t.Error(err)
		}
		m.wg.Wait()
	}
}

// A new group with sarama's default configuration is handed nothing old, as a group of sarama is not, and then all that is new.
// In a group that has offsets on the topic, a partition without one is read: from the group's beginning while that was a moment
// ago, else from its first message.
func TestNewGroupBesideSarama(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := sharedRig(t, version, n)
		r.config = byDefault()
		r.produce(10, ids(n)...)
		theirs, stop := r.theirs(r.group+"-theirs", r.topic)
		defer stop()
		a, b := r.member("a"), r.member("b")
		until(t, "all partitions are open", func() bool {
			return a.open.Load() == n/2 && b.open.Load() == n/2 && theirs.open.Load() == n
		})
		r.produce(1, ids(n)...)
		until(t, "what is new", func() bool { return total(a, b) >= n && theirs.count.Load() >= n })
		leave(a, b)
		if got := total(a, b); got != n || theirs.count.Load() != n {
			t.Errorf("%d messages were read, and %d by sarama, want %d", got, theirs.count.Load(), n)
		}
		if err := r.admin().DeleteConsumerGroupOffset(r.group, r.topic, 3); err != nil {
			t.Fatal(err)
		}
		r.produce(5, ids(n)...)
		c := r.member("c")
		until(t, "what is new, and what came since the beginning in one partition", func() bool { return c.count.Load() >= 5*n+1 })
		c.leave()
		if got := c.count.Load(); got != 5*n+1 {
			t.Errorf("%d messages were read, want %d", got, 5*n+1)
		}
		r.group += "-third"
		r.commitAs(0, 16)
		d := r.member("d")
		until(t, "all but what another program has committed", func() bool { return d.count.Load() >= 16*(n-1) })
		d.leave()
		if got := d.count.Load(); got != 16*(n-1) {
			t.Errorf("%d messages were read, want %d", got, 16*(n-1))
		}
	})
}

// commitAs stores an offset as a program does that knows nothing of us.
func (r *rig) commitAs(p int32, offset int64) {
	r.t.Helper()
	client, err := sarama.NewClient(r.brokers, byDefault())
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	om, err := sarama.NewOffsetManagerFromClient(r.group, client)
	if err != nil {
		r.t.Fatal(err)
	}
	defer om.Close()
	pom, err := om.ManagePartition(r.topic, p)
	if err != nil {
		r.t.Fatal(err)
	}
	pom.MarkOffset(offset, "")
	om.Commit()
	pom.AsyncClose()
}

// starting notes the high watermark that each claim has in the first moment of ConsumeClaim.
type starting struct {
	*member
	wrong atomic.Int64
}

func (s *starting) ConsumeClaim(sess sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	if got := c.HighWaterMarkOffset(); got != 10 {
		s.t.Logf("%s:%d: the high watermark is %d", c.Topic(), c.Partition(), got)
		s.wrong.Add(1)
	}
	return s.member.ConsumeClaim(sess, c)
}

// The high watermark is right in the first moment of ConsumeClaim, from the first message on and at the end: programs that catch
// up to it read it there.
func TestHighWaterMarkAtStart(t *testing.T) {
	t.Parallel()
	const n = 200
	r := sharedRig(t, servers.Kafka4, n)
	r.produce(10, ids(n)...)
	for _, want := range []int64{10 * n, 0} {
		s := &starting{}
		r.handler = func(m *member) sarama.ConsumerGroupHandler { s.member = m; return s }
		m := r.member("a")
		until(t, "all are open", func() bool { return m.open.Load() == n && m.count.Load() == want })
		m.leave()
		if got := s.wrong.Load(); got > 0 {
			t.Errorf("wrong in %d claims of a member that reads %d messages", got, want)
		}
	}
}

// A topic that does not exist is created as with sarama.
func TestTopicIsCreatedBesideSarama(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		r := otherwiseRig(t, version, 1)
		theirs, stop := r.theirs(r.group+"-theirs", r.topic+"-made-by-sarama")
		defer stop()
		r.topics = []string{r.topic, r.topic + "-made-here"}
		a := r.member("a")
		until(t, "both are open", func() bool { return theirs.open.Load() == 3 && a.open.Load() == 1+3 })
		leave(a)
	})
}
