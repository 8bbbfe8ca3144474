package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
)

// A partition that can't be claimed, as ownership has reported, holds up no session.
func TestEagerBlockedPartition(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		const owner = "/kiel/groups/g/owners/t:1"
		first := r.member("first", eager)
		h := &sessionLog{}
		first.calls(h)
		until(t, "all is read", func() bool { return h.reads() == 4 })
		quit(first)
		if err := r.zk.Create(owner, nil); err != nil {
			t.Fatal(err)
		}
		a, b := r.member("a", eager), r.member("b", eager)
		ha, hb := &sessionLog{}, &sessionLog{}
		var cleaned time.Time
		ha.cleanup = func(sarama.ConsumerGroupSession) error { cleaned = time.Now(); return nil }
		a.calls(ha)
		until(t, "a reads three", func() bool { return ha.reads() == 3 })
		time.Sleep(20 * time.Second)
		b.calls(hb)
		until(t, "both read", func() bool { return ha.reads() > 0 && hb.reads() > 0 && ha.reads()+hb.reads() == 3 })
		if d := ha.begun[len(ha.begun)-1].Sub(cleaned); d > 500*time.Millisecond {
			t.Errorf("a's session began %v after the one before", d)
		}
		time.Sleep(20 * time.Second)
		n := len(ha.setups())
		b.leave()
		until(t, "a reads three", func() bool { return ha.reads() == 3 })
		time.Sleep(20 * time.Second)
		if d := ha.begun[len(ha.begun)-1].Sub(cleaned); d > 500*time.Millisecond {
			t.Errorf("a's session began %v after the one before", d)
		}
		if now := len(ha.setups()); now != n+1 {
			t.Errorf("b's end cost a %d sessions", now-n)
		}
		if err := r.zk.Delete(owner); err != nil {
			t.Fatal(err)
		}
		until(t, "a reads four", func() bool { return ha.reads() == 4 })
		quit(a)
	})
}

// A batch that can't be read ends an eager session when messages before it are not committed. The member's other partitions must
// not be stopped once a second for that.
func TestEagerUnreadableBatch(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		noerr.Must(t, r.prod.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 900<<10)}).FirstErr())
		a := r.member("a", func(o *consumer.Options) { eager(o); o.MaxBatchBytes = 256 << 10 })
		h := &sessionLog{each: func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			if m.Offset < 2 { // the others wait for more
				s.MarkMessage(m, "")
			}
		}}
		a.calls(h)
		time.Sleep(2*time.Second + 500*time.Millisecond)
		if n := len(h.setups()); n != 2 {
			t.Errorf("%d sessions in 2.5 s, want the second one after a second", n)
		}
		time.Sleep(time.Hour)
		if n := len(h.setups()); n < 58 || n > 70 {
			t.Errorf("%d sessions in an hour, want one a minute", n)
		}
		a.leave()
		if errs := a.errors(); !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, consumer.ErrUnreadable) }) {
			t.Errorf("reported: %v", errs)
		}
	})
}

// Marks of Cleanup count, also of partitions whose ConsumeClaim was never called.
func TestEagerMarksOfCleanupAlone(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		a, b := r.member("a", eager), r.member("b", eager)
		ha, hb := &sessionLog{}, &sessionLog{}
		first := true
		ha.setup = func(s sarama.ConsumerGroupSession) error {
			if first {
				first = false
				<-s.Context().Done()
			}
			return nil
		}
		ha.cleanup = func(s sarama.ConsumerGroupSession) error {
			if len(ha.setups()) == 1 {
				s.MarkOffset(topic, 0, 5, "")
				s.MarkOffset(topic, 1, 5, "")
			}
			return nil
		}
		a.calls(ha)
		until(t, "Setup runs", func() bool { return len(ha.setups()) == 1 })
		b.calls(hb)
		until(t, "both read", func() bool { return ha.reads() == 1 && hb.reads() == 1 && ha.count()+hb.count() >= 10 })
		time.Sleep(time.Second)
		quit(a, b)
		if n := ha.count() + hb.count(); n != 10 {
			t.Errorf("%d messages were handled, want those from 5 on", n)
		}
	})
}

// Without AutoCommit marks of partitions whose ConsumeClaim was never called count if Commit was called after them, and are
// dropped if not: what a failed Setup has marked must not be passed over.
func TestEagerMarksWithoutAutoCommit(t *testing.T) {
	for _, where := range []string{"Cleanup", "a Setup that fails"} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/Commit=%v", where, commits), func(t *testing.T) {
				inRig(t, 2, func(t *testing.T, r *rig) {
					r.produce(10, 0, 1)
					a := r.member("a", func(o *consumer.Options) { eager(o); manual(o) })
					mark := func(s sarama.ConsumerGroupSession) {
						s.MarkOffset(topic, 0, 5, "")
						if commits {
							s.Commit()
						}
						s.MarkOffset(topic, 0, 7, "")
					}
					a.startWith(funcs{setup: func(s sarama.ConsumerGroupSession) error {
						if where == "Cleanup" {
							<-s.Context().Done()
							return nil
						}
						mark(s)
						return errWork
					}, cleanup: func(s sarama.ConsumerGroupSession) error {
						if where == "Cleanup" {
							mark(s)
						}
						return nil
					}}, topic)
					time.Sleep(3 * time.Second)
					a.stop()
					<-a.done
					if got := r.committed(topic, 0); commits && got != 5 || !commits && got > 0 {
						t.Errorf("%d is stored", got)
					}
				})
			})
		}
	}
}

// Trust ends, and comes back, in each phase: nothing runs beside another, and all is read in the end.
func TestEagerTrustInEachPhase(t *testing.T) {
	for _, where := range []string{"Setup", "ConsumeClaim", "Cleanup", "between", "joining"} {
		for _, back := range []string{"before", "after"} {
			t.Run(where+" "+back, func(t *testing.T) { inRig(t, 4, func(t *testing.T, r *rig) { trustIn(t, r, where, back == "before") }) })
		}
	}
}

func trustIn(t *testing.T, r *rig, where string, before bool) {
	slow := newGate()
	defer slow.open()
	a, b := r.member("a", eager), r.member("b", eager)
	ha, hb := &sessionLog{}, &sessionLog{}
	var armed, there atomic.Bool
	wait := func() {
		if armed.CompareAndSwap(true, false) {
			there.Store(true)
			slow.wait()
		}
	}
	switch where {
	case "Setup":
		ha.setup = func(sarama.ConsumerGroupSession) error { wait(); return nil }
	case "ConsumeClaim":
		ha.onReturn = func(sarama.ConsumerGroupClaim) { wait() }
	case "Cleanup":
		ha.cleanup = func(sarama.ConsumerGroupSession) error { wait(); return nil }
	}
	ctx, stop := context.WithCancel(context.Background())
	a.stop, a.done = stop, make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			if err = a.group.Consume(ctx, []string{topic}, ha); where == "between" {
				wait()
			}
		}
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		a.done <- err
	}()
	b.calls(hb)
	reads := func() bool { return ha.reads()+hb.reads() == 4 && ha.reads() > 0 && hb.reads() > 0 }
	until(t, "both read", reads)
	r.produce(5)
	until(t, "all is read", func() bool { return ha.count()+hb.count() == 20 })
	time.Sleep(10 * time.Second)
	armed.Store(true)
	c := r.member("c", eager)
	hc := &sessionLog{}
	if where == "joining" {
		there.Store(true)
	} else {
		c.calls(hc)
	}
	until(t, "a is there", there.Load)
	cut := func(d time.Duration) {
		a.net.Refuse()
		for _, s := range r.zk.Sessions() {
			if a.zk.Current() != nil && s.ID == a.sessionID() {
				r.zk.CutSession(s.ID)
			}
		}
		time.Sleep(d)
		a.net.Heal()
	}
	cut(20 * time.Second)
	if !before {
		slow.open()
	}
	time.Sleep(10 * time.Second)
	slow.open()
	if where == "joining" {
		c.calls(hc)
		cut(3 * time.Second)
	}
	until(t, "all read", func() bool { return ha.reads()+hb.reads()+hc.reads() == 4 && ha.reads() > 0 })
	r.produce(5)
	until(t, "all is read", func() bool { return ha.count()+hb.count()+hc.count() >= 40 })
	time.Sleep(5 * time.Second)
	quit(a, b, c)
	if n := ha.beside + hb.beside + hc.beside; n > 0 {
		t.Errorf("%d calls beside another", n)
	}
	for _, h := range []*sessionLog{ha, hb, hc} {
		if got := h.setups(); strings.Contains(fmt.Sprint(got), "Cleanup") {
			t.Error(got)
		}
	}
	t.Logf("a %v, b %v, c %v", ha.setups(), hb.setups(), hc.setups())
	r.check(false)
}

// Close, and the end of the call's context, in each phase.
func TestEagerCloseInEachPhase(t *testing.T) {
	for _, where := range []string{"Setup", "ConsumeClaim", "Cleanup"} {
		for _, how := range []string{"Close", "context"} {
			t.Run(where+" "+how, func(t *testing.T) {
				inRig(t, 2, func(t *testing.T, r *rig) {
					r.produce(10, 0, 1)
					a, b := r.member("a", eager), r.member("b", eager)
					ha, hb := &sessionLog{}, &sessionLog{}
					in := make(chan struct{}, 10)
					slow := func(s sarama.ConsumerGroupSession) {
						in <- struct{}{}
						time.Sleep(5 * time.Second)
						s.MarkOffset(topic, 0, 7, "")
						s.MarkOffset(topic, 1, 7, "")
					}
					ha.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
						if m.Offset < 3 {
							s.MarkMessage(m, "")
						}
					}
					switch where {
					case "Setup":
						ha.setup = func(s sarama.ConsumerGroupSession) error { slow(s); return nil }
					case "Cleanup":
						ha.cleanup = func(s sarama.ConsumerGroupSession) error { slow(s); return nil }
					default:
						ha.onReturn = func(sarama.ConsumerGroupClaim) { in <- struct{}{}; time.Sleep(5 * time.Second) }
					}
					a.calls(ha)
					if where == "Setup" {
						<-in
					} else {
						until(t, "a reads", func() bool { return ha.count() == 20 })
					}
					began := time.Now()
					if how == "Close" {
						ended := make(chan error)
						go func() {
							err := <-a.done
							if !errors.Is(err, sarama.ErrClosedConsumerGroup) {
								t.Errorf("the loop ended with %v", err)
							}
							ended <- nil
						}()
						if err := a.group.Close(); err != nil {
							t.Errorf("Close: %v", err)
						}
						<-ended
					} else {
						a.leave()
					}
					if d := time.Since(began); d < 4*time.Second || d > 7*time.Second {
						t.Errorf("it took %v", d)
					}
					want := int64(7)
					if where == "ConsumeClaim" {
						want = 3
					}
					for p := range int32(2) {
						if got := r.committed(topic, p); got != want {
							t.Errorf("committed %d of %d, want %d", got, p, want)
						}
					}
					b.calls(hb)
					if d := until(t, "b reads", func() bool { return hb.reads() == 2 }); d > 5*time.Second {
						t.Errorf("b reads after %v", d)
					}
					quit(b)
				})
			})
		}
	}
}

// A member to which the plan gives nothing has a session, which survives the end of trust and ends when it gains.
func TestEagerEmptyClaims(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		var members []*member
		var logs []*sessionLog
		for i := range 3 {
			h := &sessionLog{}
			logs, members = append(logs, h), append(members, r.member(string(rune('a'+i)), eager).calls(h))
			time.Sleep(15 * time.Second)
		}
		empty := -1
		for i, h := range logs {
			if got := h.setups(); len(got) > 0 && got[len(got)-1] == "[]" {
				empty = i
			}
		}
		if empty < 0 {
			t.Fatal("no member has empty Claims")
		}
		m, h := members[empty], logs[empty]
		n := len(h.setups())
		m.net.Refuse()
		r.zk.CutSession(m.sessionID())
		time.Sleep(time.Minute)
		m.net.Heal()
		time.Sleep(time.Minute)
		if got := h.setups(); len(got) != n || len(h.causes) != n-1 {
			t.Errorf("the session with empty claims has ended with trust: %v", got)
		}
		other := members[(empty+1)%3]
		other.leave()
		if d := until(t, "it reads", func() bool { return h.reads() > 0 }); d > 3*time.Second {
			t.Errorf("it reads after %v", d)
		}
		if !errors.Is(h.causes[n-1], sarama.ErrRebalanceInProgress) {
			t.Errorf("it ended with %v", h.causes[n-1])
		}
		quit(m, members[(empty+2)%3])
		r.check(false)
	})
}

// Setup that hangs while nothing is to change is only reported.
func TestEagerSetupHangsAlone(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		hung := newGate()
		a := r.member("a", eager)
		ha := &sessionLog{setup: func(sarama.ConsumerGroupSession) error { hung.wait(); return nil }}
		a.calls(ha)
		until(t, "Setup runs", func() bool { return len(ha.setups()) == 1 })
		time.Sleep(4 * time.Minute)
		a.saysStuck("Setup")
		hung.open()
		until(t, "a reads", func() bool { return ha.reads() == 2 })
		if n := len(ha.setups()); n != 1 {
			t.Errorf("%d Setups", n)
		}
		a.leave()
	})
}

// A claim's znode vanishes: the session ends with that, and the next has the partition again.
func TestEagerClaimVanishes(t *testing.T) {
	for _, where := range []string{"Setup", "ConsumeClaim", "Cleanup"} {
		t.Run(where, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				const owner = "/kiel/groups/g/owners/t:1"
				a := r.member("a", eager)
				ha := &sessionLog{}
				var gone atomic.Int32
				vanish := func() {
					if gone.Add(1) <= 2 {
						if err := r.zk.Delete(owner); err != nil {
							t.Error(err)
						}
					}
				}
				switch where {
				case "Setup":
					ha.setup = func(s sarama.ConsumerGroupSession) error {
						if vanish(); gone.Load() <= 2 {
							<-s.Context().Done()
						}
						return nil
					}
				case "Cleanup":
					ha.cleanup = func(sarama.ConsumerGroupSession) error {
						time.Sleep(100 * time.Millisecond) // what has vanished is claimed again
						vanish()
						return nil
					}
				}
				a.calls(ha)
				if where != "Setup" {
					until(t, "a reads", func() bool { return ha.reads() == 2 })
					gone.Store(1)
					if err := r.zk.Delete(owner); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(20 * time.Second)
				if ha.reads() != 2 {
					t.Errorf("a reads %d", ha.reads())
				}
				for _, c := range ha.setups() {
					if c != "[0 1]" {
						t.Errorf("a session was without a partition: %v", ha.setups())
					}
				}
				if cause := ha.causes[0]; !errors.Is(cause, sarama.ErrSessionHeartbeatFailed) || !errors.Is(cause, ownership.ErrLost) {
					t.Errorf("the session ended with %v", cause)
				}
				a.leave()
				if ha.beside > 0 {
					t.Errorf("%d calls beside another", ha.beside)
				}
			})
		})
	}
}

// The topic is created again: reading ends, the session ends with that, and the next one starts at the beginning.
func TestEagerReadingEnds(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", eager)
		ha := &sessionLog{}
		a.calls(ha)
		r.produce(5, 0)
		until(t, "a has read", func() bool { return ha.count() == 5 })
		time.Sleep(3 * time.Second)
		r.recreate()
		r.produce(3, 0)
		until(t, "a reads the new topic", func() bool { return ha.count() == 8 })
		if len(ha.causes) != 1 || ha.causes[0] != sarama.ErrSessionConsumeClaimExited { //nolint:errorlint // programs compare it
			t.Errorf("the sessions ended with %v", ha.causes)
		}
		if n := len(ha.setups()); n != 2 {
			t.Errorf("%d sessions", n)
		}
		a.leave()
	})
}
