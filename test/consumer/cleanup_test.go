package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

// manual has marks committed by Commit alone.
func manual(o *consumer.Options) { o.Config.Consumer.Offsets.AutoCommit.Enable = false }

// markAll marks all messages of a claim.
func markAll(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		s.MarkMessage(m, "")
	}
	return nil
}

// Commit in Cleanup stores what is marked, however the session ends: the claims stand until Cleanup has returned.
func TestCommitInCleanup(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*consumer.Options)
		end    func(a *member, itself func())
	}{
		"a handler returns":                   {manual, func(_ *member, itself func()) { itself() }},
		"a handler returns, with AutoCommit":  {nil, func(_ *member, itself func()) { itself() }},
		"ctx ends":                            {manual, func(a *member, _ func()) { a.stop() }},
		"Close":                               {manual, func(a *member, _ func()) { _ = a.group.Close() }},
		"a handler returns and ctx ends then": {manual, func(a *member, itself func()) { itself(); time.Sleep(time.Millisecond); a.stop() }},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 3, func(t *testing.T, r *rig) {
				r.produce(5, 0, 1, 2)
				a := r.member("a", test.change)
				itself, end := context.WithCancel(t.Context())
				var last *sarama.ConsumerMessage // of partition 1, which a worker has in hand
				stored := [3]int64{}
				a.startWith(funcs{
					claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
						switch c.Partition() {
						case 0:
							for range 5 {
								s.MarkMessage(<-c.Messages(), "")
							}
							select {
							case <-itself.Done():
							case <-s.Context().Done():
							}
							return nil
						case 1:
							for last = range c.Messages() { // the last one is wanted
							}
							return nil
						default:
							return markAll(s, c)
						}
					},
					cleanup: func(s sarama.ConsumerGroupSession) error {
						time.Sleep(100 * time.Millisecond)
						s.MarkMessage(last, "")
						s.ResetOffset(topic, 2, 3, "")
						s.Commit()
						for p := range stored {
							stored[p] = r.committed(topic, int32(p))
						}
						return nil
					},
				}, topic)
				time.Sleep(10 * time.Second)
				test.end(a, end)
				if err := <-a.done; err != nil {
					t.Errorf("Consume: %v", err)
				}
				if want := [3]int64{5, 5, 3}; stored != want {
					t.Errorf("stored after Commit in Cleanup %v, want %v", stored, want)
				}
			})
		})
	}
}

// While Cleanup runs a partition that another member is to have is not held, and no Commit stores anything of it.
func TestCleanupHoldsNothingThatIsRevoked(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		a, b := r.member("a", manual), r.member("b", manual)
		cleaning := make(chan struct{})
		a.startWith(funcs{
			claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				for range 5 {
					s.MarkMessage(<-c.Messages(), "")
				}
				if c.Partition() == 0 {
					time.Sleep(10 * time.Second)
					return nil
				}
				<-s.Context().Done()
				return nil
			},
			cleanup: func(s sarama.ConsumerGroupSession) error {
				close(cleaning)
				if took := until(t, "b has what it is to have", func() bool { return len(b.owns()) == 1 }); took > 5*time.Second {
					t.Errorf("b got its partition after %v", took)
				}
				s.Commit()
				return nil
			},
		}, topic)
		<-cleaning
		b.start()
		if err := <-a.done; err != nil {
			t.Errorf("Consume: %v", err)
		}
		mine := b.owns()[0]
		for p, name := range []string{"t:0", "t:1"} {
			if want := map[bool]int64{true: 0, false: 5}[name == mine]; r.committed(topic, int32(p)) != want {
				t.Errorf("%s: %d is stored, want %d; b has %s", name, r.committed(topic, int32(p)), want, mine)
			}
		}
		b.leave()
	})
}

// A ConsumeClaim that does not return when the call ends keeps no other partition for long, although marks are committed in
// Cleanup.
func TestStuckHandlerKeepsNothingForCleanup(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a := r.member("a", manual)
		hung := newGate()
		defer hung.open()
		a.startWith(funcs{claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			if c.Partition() == 0 {
				hung.wait()
			}
			return markAll(s, c)
		}, cleanup: func(sarama.ConsumerGroupSession) error {
			t.Error("Cleanup was called while a ConsumeClaim runs")
			return nil
		}}, topic)
		time.Sleep(5 * time.Second)
		b := r.member("b", nil).start()
		time.Sleep(5 * time.Second)
		began := time.Now()
		a.stop()
		until(t, "b has three", func() bool { return len(b.owns()) == 3 })
		if took := time.Since(began); took > 16*time.Second {
			t.Errorf("b got the others after %v", took)
		}
		err := <-a.done
		if stuck, ok := errors.AsType[*ownership.StuckError](err); !ok || stuck.Partition.ID != 0 {
			t.Errorf("Consume: %v", err)
		}
		until(t, "b has all", func() bool { return len(b.owns()) == 4 })
		b.leave()
	})
}
