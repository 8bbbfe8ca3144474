package consumer_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// funcs is a handler that is made of functions; without one it does nothing.
type funcs struct {
	setup, cleanup func(sarama.ConsumerGroupSession) error
	claim          func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error
}

func (h funcs) Setup(s sarama.ConsumerGroupSession) error {
	if h.setup == nil {
		return nil
	}
	return h.setup(s)
}

func (h funcs) Cleanup(s sarama.ConsumerGroupSession) error {
	if h.cleanup == nil {
		return nil
	}
	return h.cleanup(s)
}

func (h funcs) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	if h.claim == nil {
		<-s.Context().Done()
		return nil
	}
	return h.claim(s, c)
}

// seeker is a handler whose Setup resets all of its claims to offset.
func seeker(h *recorder, offset int64) funcs {
	return funcs{claim: h.ConsumeClaim, setup: func(s sarama.ConsumerGroupSession) error {
		for topic, ids := range s.Claims() {
			for _, id := range ids {
				s.ResetOffset(topic, id, offset, "")
			}
		}
		return nil
	}}
}

// A reset of Setup is about where the partition was left off then. One that was promised, goes to another member, and comes an
// hour later is read from where that member has left off: else messages are lost, or come again.
func TestSeeksOfPartitionsThatGoElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		from consumer.StartAt
		to   int64
	}{
		"to the newest":         {consumer.Latest, sarama.OffsetNewest},
		"to one that was there": {consumer.Earliest, 5},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 6, func(t *testing.T, r *rig) {
				from := func(o *consumer.Options) { o.StartAt, o.RebalanceTimeout = test.from, 10*time.Minute }
				a, b, c, d := r.member("a", from), r.member("b", from), r.member("c", from), r.member("d", from)
				hold := newGate()
				a.h.ending = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) { hold.wait() }
				a.start()
				until(t, "a has all", func() bool { return len(a.owns()) == 6 })
				r.produce(10)
				until(t, "a read all", func() bool { return a.h.count() == 60 })

				b.startWith(seeker(b.h, test.to), topic)
				time.Sleep(5 * time.Second)
				c.start()
				d.start()
				time.Sleep(2 * time.Second)
				hold.open()
				until(t, "all are open", func() bool { return len(b.owns()) > 0 && len(a.owns())+len(b.owns())+len(c.owns())+len(d.owns()) == 6 })
				kept := len(b.owns())
				time.Sleep(10 * time.Minute)
				r.produce(1000)
				time.Sleep(5 * time.Second)
				read := b.h.count()
				a.leave()
				c.stop()
				d.stop()
				r.produce(1000) // b begins behind what the others have read, and before this
				<-c.done
				<-d.done
				until(t, "b has all", func() bool { return len(b.owns()) == 6 })
				time.Sleep(10 * time.Second)
				b.leave()
				if kept == 6 {
					t.Fatal("no partition went to another member")
				}
				if again := b.h.count() - read - 6*1000; again > 0 {
					t.Errorf("%d messages were read again", again)
				}
				if test.to < 0 { // a reset to 5 is one that the checker would report
					r.check(false)
				}
			})
		})
	}
}

// Where Setup makes a partition start is stored before the first message, whether marks are committed by themselves or not: when
// the partition is opened again in the session, it starts there.
func TestSeekIsStored(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		a := r.member("a", func(o *consumer.Options) { o.Config.Consumer.Offsets.AutoCommit.Enable = false })
		at := make(chan int64, 1)
		a.startWith(funcs{
			setup: func(s sarama.ConsumerGroupSession) error {
				s.MarkOffset(topic, 0, 5, "")
				s.Commit()
				return nil
			},
			claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				<-c.Messages()
				at <- r.committed(topic, 0)
				<-s.Context().Done()
				return nil
			},
		}, topic)
		if got := <-at; got != 5 {
			t.Errorf("%d is stored when the first message comes", got)
		}
		a.leave()
		if got := r.committed(topic, 0); got != 5 {
			t.Errorf("%d is stored at the end", got)
		}
	})
}

// A promise ends with the ZooKeeper session: the others go on without this member, which may not see what they decide meanwhile.
func TestSeeksEndWithTheSession(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		from := func(o *consumer.Options) { o.StartAt, o.RebalanceTimeout = consumer.Latest, 10*time.Minute }
		a, b := r.member("a", from), r.member("b", from)
		hold := newGate()
		a.h.ending = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) { hold.wait() }
		a.start()
		until(t, "a has all", func() bool { return len(a.owns()) == 2 })
		b.startWith(seeker(b.h, sarama.OffsetNewest), topic)
		time.Sleep(5 * time.Second)
		r.zk.KillSession(b.sessionID())
		time.Sleep(5 * time.Second)
		r.produce(10, 0, 1)
		time.Sleep(5 * time.Second)
		hold.open()
		until(t, "both have one", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		time.Sleep(5 * time.Second)
		a.leave()
		time.Sleep(5 * time.Second)
		b.leave()
		r.check(true)
	})
}
