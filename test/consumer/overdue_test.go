package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

// overdue makes a lose a partition to b whose handler does not return, and then get it back, since b leaves. a reads both
// partitions, and its handlers call hang when they are told to finish.
func overdue(t *testing.T, r *rig, a *member, start func(*member)) {
	t.Helper()
	start(a)
	until(t, "a reads both", func() bool { return len(a.owns()) == 2 })
	b := r.member("b", nil).start()
	until(t, "b reads what a has lost", func() bool { return len(b.owns()) == 1 })
	b.leave()
}

// An overdue partition that is planned for its member again ends Consume's session: with the handler's return nobody waits any
// more.
func TestOverduePartitionComesBack(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		hung := newGate()
		a := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout = 10 * time.Second })
		overdue(t, r, a, func(a *member) {
			a.h.ending = func(_ sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) { hung.wait() }
			a.startWith(hanger{recorder: a.h}, topic)
		})
		time.Sleep(5 * time.Second)
		hung.open()
		if err := <-a.done; !errors.Is(err, sarama.ErrRebalanceTimedOut) {
			t.Errorf("Consume: %v", err)
		}
		a.start()
		until(t, "a reads both again", func() bool { return len(a.owns()) == 2 })
		a.leave()
		r.check(true)
	})
}

// If the handler does not return then either, it is given up, and nothing says that all have returned.
func TestOverduePartitionStaysOverdue(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		hung := newGate()
		defer hung.open()
		a := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout = 10 * time.Second })
		overdue(t, r, a, func(a *member) {
			a.h.ending = func(_ sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) { hung.wait() }
			a.startWith(hanger{recorder: a.h}, topic)
		})
		if err := <-a.done; !errors.Is(err, ownership.ErrStuck) || errors.Is(err, sarama.ErrRebalanceTimedOut) {
			t.Errorf("Consume: %v", err)
		}
	})
}

// With Run the others go on; the member leaves RebalanceTimeout after the plan gave the partition back, if the handler has not
// returned.
func TestOverduePartitionOfRun(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		hung := newGate()
		defer hung.open()
		a := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout, o.StopTimeout = 10*time.Second, 5*time.Second })
		first := true
		var mu sync.Mutex
		overdue(t, r, a, func(a *member) {
			a.runWith(func(ctx context.Context, p *consumer.Partition) error {
				err := a.h.handle(ctx, p)
				mu.Lock()
				hang := first
				first = false
				mu.Unlock()
				if hang {
					hung.wait()
				}
				return err
			})
		})
		began := time.Now()
		time.Sleep(5 * time.Second)
		if len(a.owns()) != 1 || len(a.done) > 0 {
			t.Errorf("the other partition does not go on: %v", a.owns())
		}
		if err := <-a.done; !errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Run: %v", err)
		}
		if d := time.Since(began); d < 9*time.Second || d > 20*time.Second {
			t.Errorf("Run returned after %v", d)
		}
	})
}

// When the member leaves, a ConsumeClaim or Cleanup that returns after its time, but before the member has left, was abandoned
// all the same: its marks are not stored, and Consume returns ErrStuck.
func TestOverdueWhileLeaving(t *testing.T) {
	for where, text := range map[string]string{"ConsumeClaim": "handler of t:0", "Cleanup": "Cleanup"} {
		t.Run(where, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				const stopTimeout, tooLate = 20 * time.Second, 15100 * time.Millisecond // what an eager session calls has 14.6 s of 20 s
				a := r.member("a", func(o *consumer.Options) { eager(o); o.StopTimeout = stopTimeout })
				ha := &sessionLog{}
				if where == "Cleanup" {
					ha.cleanup = func(sarama.ConsumerGroupSession) error { time.Sleep(tooLate); return nil }
				} else {
					ha.onReturn = func(sarama.ConsumerGroupClaim) { time.Sleep(tooLate) }
				}
				a.calls(ha)
				until(t, "a reads", func() bool { return ha.reads() == 1 })
				began := time.Now()
				a.stop()
				err := <-a.done
				if d := time.Since(began); !errors.Is(err, ownership.ErrStuck) || !strings.Contains(err.Error(), text) || d > stopTimeout {
					t.Errorf("Consume: %v after %v", err, d)
				}
			})
		})
	}
}

// Consume names once what has not returned in its time, be it that the member leaves because of that, or leaves anyway.
func TestStuckIsNamedOnce(t *testing.T) {
	for where, text := range map[string]string{"ConsumeClaim": "handler of t:0", "Cleanup": "Cleanup", "Setup": "Setup"} {
		for _, kind := range []string{"eager", "incremental"} {
			for _, leaves := range []bool{true, false} {
				if kind == "incremental" && !leaves {
					continue // it goes on
				}
				t.Run(fmt.Sprintf("%s %s %v", where, kind, leaves), func(t *testing.T) {
					inRig(t, 1, func(t *testing.T, r *rig) {
						hung := newGate()
						defer hung.open()
						a := r.member("a", func(o *consumer.Options) {
							if kind == "eager" {
								eager(o)
							}
						})
						ha := &sessionLog{}
						switch where {
						case "Setup":
							ha.setup = func(sarama.ConsumerGroupSession) error { hung.wait(); return nil }
						case "Cleanup":
							ha.cleanup = func(sarama.ConsumerGroupSession) error { hung.wait(); return nil }
						default:
							ha.onReturn = func(sarama.ConsumerGroupClaim) { hung.wait() }
						}
						a.calls(ha)
						until(t, "a begins", func() bool { return ha.reads() == 1 || hung.waiting.Load() == 1 })
						if leaves {
							a.stop()
						} else {
							time.Sleep(5 * time.Second)
							r.grow(2)
						}
						if err := <-a.done; !errors.Is(err, ownership.ErrStuck) || strings.Count(err.Error(), text) != 1 {
							t.Errorf("Consume: %v", err)
						}
					})
				})
			}
		}
	}
}

// Kafka does not answer until the time of a session is over that its program has ended: the member leaves, and Consume says why.
func TestSessionIsNotClosedInTime(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1, 2, 3)
		a, b := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout = 15 * time.Second }), r.member("b", nil)
		exit := newGate()
		ha := &sessionLog{each: func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			s.MarkMessage(m, "")
			if m.Partition == 0 && m.Offset == 4 {
				exit.wait()
				panic("it returns by itself")
			}
		}}
		a.calls(ha)
		until(t, "a has read", func() bool { return ha.count() == 20 })
		time.Sleep(5 * time.Second)
		refused := r.refuse(kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress)
		r.produce(5, 1, 2, 3)
		until(t, "a has read", func() bool { return ha.count() == 35 })
		exit.open()
		time.Sleep(100 * time.Millisecond)
		b.start()
		time.Sleep(time.Minute)
		refused.Remove()
		select {
		case err := <-a.done:
			if !errors.Is(err, ownership.ErrStuck) {
				t.Errorf("Consume: %v", err)
			}
		default:
			t.Error("Consume has returned nil")
			a.leave()
		}
		b.leave()
	})
}
