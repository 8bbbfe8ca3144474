package consumer_test

import (
	"context"
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

func TestOnlyPartitionsThatMoveAreClosed(t *testing.T) {
	inRig(t, 6, func(t *testing.T, r *rig) {
		r.produce(50)
		a := r.member("a", nil).start()
		until(t, "a has all", func() bool { return total(a) == 300 })
		b := r.member("b", nil).start()
		d := until(t, "b has three", func() bool { return len(b.owns()) == 3 })
		t.Logf("b joined and opened after %v", d)
		r.produce(50)
		until(t, "600 messages", func() bool { return total(a, b) == 600 })
		c := r.member("c", nil).start()
		until(t, "c has two", func() bool { return len(c.owns()) == 2 })
		r.produce(50)
		until(t, "900 messages", func() bool { return total(a, b, c) == 900 })
		a.leave()
		until(t, "all are open", func() bool { return len(b.owns())+len(c.owns()) == 6 })
		r.produce(50)
		until(t, "1200 messages", func() bool { return total(a, b, c) == 1200 })
		for _, m := range []*member{b, c} {
			m.leave()
		}
		for _, m := range []*member{a, b, c} {
			m.close()
			calls := m.h.called()
			if calls[0] != "setup" || calls[len(calls)-1] != "cleanup" {
				t.Errorf("%s: %v does not begin with setup and end with cleanup", m.name, calls)
			}
			for _, once := range []string{"setup", "cleanup"} {
				if n := len(slices.DeleteFunc(slices.Clone(calls), func(s string) bool { return s != once })); n != 1 {
					t.Errorf("%s: %d times %s", m.name, n, once)
				}
			}
		}
		opens := 0
		for _, call := range a.h.called() {
			if strings.HasPrefix(call, "open") {
				opens++
			}
		}
		if opens > 7 { // six at first; a second member may swap what it has
			t.Errorf("a opened %d times: partitions that stayed were closed", opens)
		}
		r.check(false)
	})
}

func TestZombieCommitsNothing(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		release := make(chan struct{})
		a := r.member("a", nil)
		a.h.before(func(_ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			if m.Offset == 5 {
				<-release // a long pause, in which everything else happens
			}
		})
		a.start()
		until(t, "a hangs", func() bool { return total(a) == 6 })
		time.Sleep(2 * time.Second)
		b := r.member("b", nil).start()
		a.net.Freeze()
		until(t, "b has seen the rest", func() bool { return total(b) == 5 })
		until(t, "b has committed", func() bool { return r.committed(topic, 0) == 10 })
		close(release)
		time.Sleep(30 * time.Second)
		if got := r.committed(topic, 0); got != 10 {
			t.Errorf("the zombie committed %d", got)
		}
		if got := a.h.offsets(topic, 0); len(got) != 6 {
			t.Errorf("the zombie was given %v", got)
		}
		a.net.Heal()
		quit(b)
		quit(a)
		if rep := r.check(true); rep.Duplicates > 1 { // the one in a's hand
			t.Errorf("%s", rep)
		}
	})
}

func TestHandoverIsFewCommits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 64
		r := newRig(t, n)
		r.produce(5)
		a := r.member("a", nil).start()
		until(t, "all messages", func() bool { return total(a) == 5*n })
		commits := r.observe(kmsg.OffsetCommit)
		a.leave()
		requests := commits.Hits()
		t.Logf("the last commits of %d partitions took %d requests", n, requests)
		if requests > n/2 { // an answer takes no time here, so little waits for it
			t.Errorf("the last commits of %d partitions took %d requests", n, requests)
		}
		for _, p := range r.all {
			if got := r.committed(topic, p); got != 5 {
				t.Errorf("committed %d of partition %d", got, p)
			}
		}
		a.close()
		r.check(false)
	})
}

func TestReopenPartition(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("boom") },
		"panic": func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				a := r.member("a", func(o *consumer.Options) { o.ReopenPartition = true })
				failed := false
				a.h.each = func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
					if c.Partition() == 1 && m.Offset == 3 && !failed {
						failed = true
						return fail()
					}
					s.MarkMessage(m, "")
					return nil
				}
				r.produce(10, 0, 1)
				a.start()
				until(t, "all marked", func() bool { return r.committed(topic, 0) == 10 && r.committed(topic, 1) == 10 })
				if got := a.h.offsets(topic, 1); !slices.Equal(got, []int64{0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9}) {
					t.Errorf("partition 1 was given %v", got)
				}
				if got := len(a.h.offsets(topic, 0)); got != 10 {
					t.Errorf("partition 0 was given %d messages", got)
				}
				if n := slices.Index(a.h.called(), "close t:0"); n >= 0 {
					t.Errorf("partition 0 was closed too: %v", a.h.called())
				}
				var found bool
				for _, err := range a.errors() {
					ce, ok := errors.AsType[*sarama.ConsumerError](err)
					if ok && ce.Topic == topic && ce.Partition == 1 && errors.Is(err, consumer.ErrHandler) && strings.Contains(err.Error(), "boom") {
						found = true
					}
				}
				if !found || len(a.errors()) != 1 {
					t.Errorf("errors: %v", a.errors())
				}
				quit(a)
			})
		})
	}
}

// An error that a handler returns by itself is reported although its partition is revoked before the last commit is made.
func TestReopenPartitionThatIsRevoked(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.ReopenPartition, o.CommitInterval = true, time.Hour })
		a.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
			s.MarkMessage(m, "")
			return errWork
		}
		a.start()
		until(t, "a has both", func() bool { return len(a.owns()) == 2 })
		slow := r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
		r.produce(1, 0, 1)
		until(t, "both have returned", func() bool { return len(a.owns()) == 0 })
		b := r.member("b", nil).start()
		time.Sleep(3 * time.Second)
		slow.Remove()
		until(t, "each has one", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		errs := slices.DeleteFunc(a.errors(), func(err error) bool { return !errors.Is(err, errWork) || !errors.Is(err, consumer.ErrHandler) })
		if len(errs) != 2 {
			t.Errorf("reported %v", a.errors())
		}
		a.leave()
		b.leave()
	})
}

func TestSetupErrorEndsConsume(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(1, 0)
		a := r.member("a", nil)
		a.h.setupErr = errors.New("no database")
		a.start()
		if err := <-a.done; !errors.Is(err, a.h.setupErr) {
			t.Errorf("Consume: %v", err)
		}
		if calls := a.h.called(); !slices.Equal(calls, []string{"setup", "cleanup"}) { // as sarama does
			t.Errorf("calls: %v", calls)
		}
		a.h.setupErr = nil
		a.start() // a later call joins again
		until(t, "the message", func() bool { return total(a) == 1 })
		quit(a)
	})
}

func TestConsumeAgainAndClose(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		for i := range 3 {
			r.produce(5, 0, 1)
			a.start()
			until(t, "messages", func() bool { return total(a) == 10*(i+1) })
			if err := a.group.Consume(t.Context(), []string{topic}, a.h); !errors.Is(err, consumer.ErrBusy) {
				t.Errorf("a second Consume: %v", err)
			}
			if i < 2 {
				a.leave()
			}
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			a.close()
		}()
		if err := <-a.done; err != nil {
			t.Errorf("Consume ended by Close: %v", err)
		}
		<-closed
		if err := a.group.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if err := a.group.Consume(t.Context(), []string{topic}, a.h); !errors.Is(err, sarama.ErrClosedConsumerGroup) {
			t.Errorf("Consume after Close: %v", err)
		}
		a.stop()
		r.check(false)
	})
}

func TestConsumeWithoutServers(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		// no such topic
		if err := a.group.Consume(t.Context(), []string{"nosuch"}, a.h); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("unknown topic: %v", err)
		}
		if info := r.kafka.TopicInfo("nosuch"); info != nil {
			t.Error("the topic was created")
		}
		// ZooKeeper silent
		a.net.Refuse()
		r.zk.CutAll()
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := a.group.Consume(ctx, []string{topic}, a.h); err != nil {
			t.Errorf("without ZooKeeper: %v", err)
		}
		if d := time.Since(start); d > 40*time.Second {
			t.Errorf("Consume ended %v after its start, its context after 3 s", d)
		}
		if calls := a.h.called(); len(calls) != 0 {
			t.Errorf("calls: %v", calls)
		}
		a.net.Heal()
		time.Sleep(20 * time.Second)
		// Kafka gone
		r.kafka.Close()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.group.Consume(ctx, []string{topic}, a.h); err == nil || ctx.Err() != nil {
			t.Errorf("without Kafka: %v", err)
		}
		a.close()
	})
}

func TestPauseAndResume(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		r.produce(5, 0, 1)
		until(t, "10 messages", func() bool { return total(a) == 10 })
		a.group.Pause(map[string][]int32{topic: {0}})
		time.Sleep(time.Second) // what is being fetched arrives
		r.produce(5, 0, 1)
		time.Sleep(10 * time.Second)
		if got := len(a.h.offsets(topic, 0)); got != 5 {
			t.Errorf("a paused partition was given %d messages", got)
		}
		if got := len(a.h.offsets(topic, 1)); got != 10 {
			t.Errorf("the other one was given %d messages", got)
		}
		// away and back: still paused
		b := r.member("b", nil).start()
		until(t, "b has one", func() bool { return len(b.owns()) == 1 })
		b.leave()
		until(t, "a has both", func() bool { return len(a.owns()) == 2 })
		time.Sleep(10 * time.Second)
		before := total(a)
		a.group.PauseAll()
		time.Sleep(time.Second)
		r.produce(5, 0, 1)
		time.Sleep(10 * time.Second)
		if got := total(a); got != before {
			t.Errorf("given %d messages while all were paused", got-before)
		}
		a.group.Resume(map[string][]int32{topic: {1}})
		until(t, "partition 1 goes on", func() bool { return len(a.h.offsets(topic, 1))+len(b.h.offsets(topic, 1)) == 15 })
		a.group.ResumeAll()
		until(t, "all messages", func() bool { return total(a, b) == 30 })
		quit(a)
		b.close()
		r.check(false)
	})
}

func TestSlowPartitionDoesNotHoldUpItsNeighbour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2, kfake.NumBrokers(1), kfake.Ports(9092))
		r.produce(2000, 0, 1)
		a := r.member("a", func(o *consumer.Options) { o.Config.Consumer.Fetch.Default = 16 << 10 })
		a.h.before(func(c sarama.ConsumerGroupClaim, _ *sarama.ConsumerMessage) {
			if c.Partition() == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		})
		a.start()
		d := until(t, "the fast one is done", func() bool { return len(a.h.offsets(topic, 1)) == 2000 })
		slow := len(a.h.offsets(topic, 0))
		t.Logf("fast partition done after %v, the slow one was at %d of 2000", d, slow)
		if d > 5*time.Second {
			t.Errorf("2000 messages took %v beside a slow partition", d)
		}
		until(t, "the slow one is done", func() bool { return len(a.h.offsets(topic, 0)) == 2000 })
		quit(a)
		r.check(false)
	})
}

func TestStuckHandlerLosesItsPartition(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		release := make(chan struct{})
		a := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout = 5 * time.Second })
		a.h.before(func(_ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			if m.Offset == 3 {
				<-release
			}
		})
		a.start()
		until(t, "both hang", func() bool { return total(a) == 8 })
		time.Sleep(2 * time.Second)
		b := r.member("b", nil).start()
		until(t, "b has seen one to the end", func() bool { return total(b) == 7 })
		until(t, "b has committed", func() bool { return r.committed(topic, 0) == 10 || r.committed(topic, 1) == 10 })
		mine := b.owns()
		close(release)
		time.Sleep(5 * time.Second)
		for p := range int32(2) {
			if slices.Contains(mine, eventPartition(p)) && r.committed(topic, p) != 10 {
				t.Errorf("the stuck handler's mark was committed: %d", r.committed(topic, p))
			}
		}
		var stuck bool
		for _, err := range a.errors() {
			stuck = stuck || isStuck(err)
		}
		if !stuck {
			t.Errorf("errors of a: %v", a.errors())
		}
		quit(a, b)
	})
}
