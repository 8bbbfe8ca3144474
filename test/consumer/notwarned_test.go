package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// A program that marks only what concerns it (the last message is none of that) waits for the next message. It does not stand.
func TestFilterDoesNotStand(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(4, 0)
		m := r.member("a", nil)
		m.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, msg *sarama.ConsumerMessage) error {
			if msg.Offset%2 == 0 {
				s.MarkMessage(msg, "")
			}
			return nil
		}
		m.start()
		time.Sleep(10 * time.Minute)
		if n := said.Count("kind=stands"); n > 0 {
			t.Errorf("%d lines, though nothing waits and the handler waits for a message:\n%s", n, said)
		}
		m.leave()
	})
}

// A handler whose messages take longer than a minute each is warned of now and then.
func TestSlowMessagesAreWarnedOfSeldom(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(40, 0)
		m := r.member("a", nil)
		m.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, msg *sarama.ConsumerMessage) error {
			select {
			case <-s.Context().Done():
				return nil
			case <-time.After(90 * time.Second):
			}
			s.MarkMessage(msg, "")
			return nil
		}
		m.start()
		time.Sleep(30 * time.Minute)
		if n := said.Count("kind=stands"); n > 4 {
			t.Errorf("%d lines in half an hour of a program that goes on:\n%s", n, said)
		}
		m.leave()
	})
}

// timely returns after ten minutes.
type timely struct{ *recorder }

func (timely) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	select {
	case <-s.Context().Done():
	case <-time.After(10 * time.Minute):
	}
	return nil
}

// A program whose ConsumeClaim ends itself each ten minutes, on a topic without messages.
func TestTimelyReturnIsNotWarnedOf(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		m := r.member("a", nil)
		for range 4 {
			if err := m.group.Consume(t.Context(), []string{topic}, timely{m.h}); err != nil {
				t.Fatal(err)
			}
		}
		if n := said.Count("level=WARN", "kind=handler"); n > 0 {
			t.Errorf("%d warnings of at once:\n%s", n, said)
		}
		m.close()
	})
}

// stored has its offsets in a store of its own, as sarama's documentation has it: Setup says where partitions start.
type stored struct{ *recorder }

func (stored) Setup(s sarama.ConsumerGroupSession) error {
	for topic, ids := range s.Claims() {
		for _, id := range ids {
			s.MarkOffset(topic, id, 2, "")
			s.ResetOffset(topic, id, 2, "")
		}
	}
	return nil
}

func (stored) ConsumeClaim(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for range c.Messages() {
	}
	return nil
}

// A program that sets its start positions in Setup keeps offsets itself.
func TestStoreOfTheProgramIsNotWarnedOf(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(5, 0)
		m := r.member("a", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_ = m.group.Consume(ctx, []string{topic}, stored{m.h})
		if n := said.Count("level=WARN", "kind=unmarked"); n > 0 {
			t.Errorf("%d warnings:\n%s", n, said)
		}
		m.close()
	})
}

// A handler that has marked all polls once in five minutes.
func TestPollOnceInAWhileDoesNotStand(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(5, 0)
		m := r.member("a", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		_ = m.group.Run(ctx, []string{topic}, func(ctx context.Context, p *consumer.Partition) error {
			for ctx.Err() == nil {
				short, stop := context.WithTimeout(ctx, time.Second)
				if b, _ := p.Poll(short, 100); len(b) > 0 {
					p.Mark(&b[len(b)-1])
				}
				stop()
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Minute):
				}
			}
			return nil
		})
		if n := said.Count("kind=stands"); n > 0 {
			t.Errorf("%d lines, though all is marked and nothing waits:\n%s", n, said)
		}
		m.close()
	})
}

// A handler pauses its partition and waits, as programs do while a database is away.
func TestPausedPartitionDoesNotStand(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(5, 0)
		m := r.member("a", nil)
		m.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, msg *sarama.ConsumerMessage) error {
			if msg.Offset == 2 {
				m.group.PauseAll()
				time.Sleep(10 * time.Minute)
				m.group.ResumeAll()
			}
			s.MarkMessage(msg, "")
			return nil
		}
		m.start()
		time.Sleep(20 * time.Minute)
		if n := said.Count("kind=stands"); n > 0 {
			t.Errorf("%d lines of a partition that the program has paused:\n%s", n, said)
		}
		m.leave()
	})
}
