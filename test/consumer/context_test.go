package consumer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

// worker is a handler that works on its first message under the session's context, until that context ends.
type worker struct {
	*recorder
	setup   context.Context // of Setup's session
	began   chan struct{}   // receives a value for each ConsumeClaim that has a message
	stopped chan stopped    // receives how the work ended
	finish  func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage)
}

// stopped is why the work on a partition ended, and when.
type stopped struct {
	partition int32
	cause     error
	at        time.Time
}

func newWorker(m *member) *worker {
	return &worker{recorder: m.h, began: make(chan struct{}, 10), stopped: make(chan stopped, 10)}
}

func (h *worker) Setup(s sarama.ConsumerGroupSession) error {
	h.setup = s.Context()
	return h.recorder.Setup(s)
}

func (h *worker) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		h.began <- struct{}{}
		select {
		case <-s.Context().Done():
		case <-time.After(5 * time.Minute): // too late, but the test must end
		}
		h.stopped <- stopped{c.Partition(), context.Cause(s.Context()), time.Now()}
		if h.finish != nil {
			h.finish(s, c, m)
		}
	}
	return nil
}

// works lets m work on both partitions.
func (h *worker) works(m *member) {
	m.startWith(h, topic)
	<-h.began
	<-h.began
}

// Work under the context of ConsumeClaim's session ends when the partition is revoked, and the other partition's goes on. What
// the handler marks and commits then is stored before the next owner reads.
func TestContextEndsWithTheRevocation(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(3, 0, 1)
		a := r.member("a", func(o *consumer.Options) { o.Config.Consumer.Offsets.AutoCommit.Enable = false })
		h := newWorker(a)
		h.finish = func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			s.MarkMessage(m, "")
			s.Commit()
			if got := r.committed(topic, c.Partition()); got != 1 {
				t.Errorf("committed %d while the handler finished", got)
			}
			if own, ok := consumer.SessionOf(s); !ok || !own.Trusted(topic, c.Partition()) || own.Token(topic, c.Partition()) == 0 {
				t.Error("no trust while the handler finishes")
			}
		}
		h.works(a)
		began := time.Now()
		b := r.member("b", nil).start()
		end := <-h.stopped
		if took := end.at.Sub(began); took > 2*time.Second || !errors.Is(end.cause, ownership.ErrRevoked) {
			t.Errorf("the work ended after %v by %v", took, end.cause)
		}
		until(t, "b goes on", func() bool { return len(b.h.offsets(topic, end.partition)) == 2 })
		if len(h.stopped) > 0 || h.setup.Err() != nil {
			t.Error("the other partition's work, or the context of Setup, ended too")
		}
		h.finish = nil
		a.stop()
		if end := <-h.stopped; !errors.Is(end.cause, context.Canceled) || !errors.Is(context.Cause(h.setup), context.Canceled) {
			t.Errorf("at the end of the call the work ended by %v, the context of Setup by %v", end.cause, context.Cause(h.setup))
		}
		if err := <-a.done; err != nil {
			t.Errorf("Consume: %v", err)
		}
		b.leave()
	})
}

// When trust in the session ends, so does work under the context of ConsumeClaim's session: others may own the partition.
func TestContextEndsWithTrust(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(1, 0, 1)
		a := r.member("a", nil)
		h := newWorker(a)
		h.works(a)
		began := time.Now()
		a.net.Freeze()
		for range 2 {
			end := <-h.stopped
			if took := end.at.Sub(began); took > a.zk.Timeout() || !errors.Is(end.cause, ownership.ErrLost) {
				t.Errorf("the work ended after %v by %v", took, end.cause)
			}
		}
		if h.setup.Err() != nil {
			t.Errorf("the context of Setup ended: %v", context.Cause(h.setup))
		}
		a.net.Heal()
		a.leave()
	})
}

// patient is a handler that ends with the session's context alone, as those for sarama's default strategy may.
type patient struct{ *recorder }

func (h patient) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for messages := c.Messages(); ; {
		select {
		case m, ok := <-messages:
			if !ok {
				messages = nil
				continue
			}
			h.take(m)
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			return s.Context().Err()
		case <-time.After(5 * time.Minute): // too late, but the test must end
			return nil
		}
	}
}

// A handler that waits for the context, and not for the end of Messages, delays no next owner and reports nothing.
func TestHandlerThatEndsWithTheContextAlone(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig, kind func(*consumer.Options)) {
		r.produce(5)
		a, b := r.member("a", kind), r.member("b", kind)
		a.calls(patient{a.h})
		until(t, "30 messages", func() bool { return total(a) == 30 })
		b.calls(patient{b.h})
		r.produce(5)
		if took := until(t, "60 messages", func() bool { return total(a, b) == 60 }); took > 5*time.Second {
			t.Errorf("handed over after %v", took)
		}
		a.net.Freeze() // and when trust ends
		until(t, "b has all", func() bool {
			r.produce(1)
			time.Sleep(time.Second)
			return !slices.ContainsFunc(r.all, func(p int32) bool { return len(b.h.offsets(topic, p)) < 2 })
		})
		a.net.Heal()
		quit(a, b)
		for _, m := range []*member{a, b} {
			for _, err := range m.errors() {
				if errors.Is(err, context.Canceled) { // what the handler returned
					t.Errorf("%s: %v", m.name, err)
				}
			}
		}
		r.check(true)
	})
}

// wrapped is a session as other people's wrappers make it.
type wrapped struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (w wrapped) Context() context.Context { return w.ctx }

// The context of ConsumeClaim's session has the values of the call's, and SessionOf finds that session behind a wrapper.
func TestContextOfTheClaimsSession(t *testing.T) {
	type key struct{}
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
		h := &sessions{recorder: a.h, claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			defer stop()
			inner, end := context.WithCancel(s.Context())
			defer end()
			own, ok := consumer.SessionOf(wrapped{s, inner})
			if !ok || own != s || own.Context() != s.Context() || !own.Trusted(c.Topic(), c.Partition()) {
				t.Errorf("behind the wrapper: %v, %t", own, ok)
			}
			if s.Context().Value(key{}) != 1 {
				t.Error("the values of the call's context are gone")
			}
			return nil
		}}
		if err := a.group.Consume(ctx, []string{topic}, h); err != nil {
			t.Errorf("Consume: %v", err)
		}
	})
}
