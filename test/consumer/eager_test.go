package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// eager gives a member the sessions of sarama's default strategy.
func eager(o *consumer.Options) {
	o.Config.Consumer.Group.Rebalance.GroupStrategies = sarama.NewConfig().Consumer.Group.Rebalance.GroupStrategies
}

// calls consumes with h in a loop, as programs do, until the member is told to leave or a call returns an error. When a session
// ends just as the member is told to leave, it is the next call that leaves.
func (m *member) calls(h sarama.ConsumerGroupHandler) *member {
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan error, 1)
	go func() {
		for {
			err := m.group.Consume(ctx, []string{topic}, h)
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				m.done <- nil
				return
			}
			if err != nil {
				m.done <- err
				return
			}
		}
	}()
	return m
}

// sessionLog is a handler that notes what it is called with.
type sessionLog struct {
	mu       sync.Mutex
	claims   []string      // of each Setup
	causes   []error       // with which the contexts ended, as Cleanup finds them
	begun    []time.Time   // of each Setup
	running  map[int32]int // ConsumeClaims that run
	handled  map[int32]int // messages, by partition
	setup    func(s sarama.ConsumerGroupSession) error
	cleanup  func(s sarama.ConsumerGroupSession) error
	each     func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage)
	onReturn func(c sarama.ConsumerGroupClaim)
	beside   int // calls of ConsumeClaim beside another of the same partition, and of Setup and Cleanup beside one
}

func claimsOf(s sarama.ConsumerGroupSession) string { return fmt.Sprint(s.Claims()[topic]) }

func (h *sessionLog) Setup(s sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	h.claims, h.begun = append(h.claims, claimsOf(s)), append(h.begun, time.Now())
	h.alone()
	h.mu.Unlock()
	if h.setup != nil {
		return h.setup(s)
	}
	return nil
}

func (h *sessionLog) alone() {
	for _, n := range h.running {
		h.beside += n
	}
}

func (h *sessionLog) Cleanup(s sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	h.causes = append(h.causes, context.Cause(s.Context()))
	if got := claimsOf(s); got != h.claims[len(h.claims)-1] {
		h.claims = append(h.claims, "Cleanup has other claims: "+got)
	}
	h.alone()
	h.mu.Unlock()
	if h.cleanup != nil {
		return h.cleanup(s)
	}
	return nil
}

func (h *sessionLog) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	h.run(c, 1)
	defer h.run(c, -1)
	for m := range c.Messages() {
		h.mu.Lock()
		if h.handled == nil {
			h.handled = map[int32]int{}
		}
		h.handled[m.Partition]++
		h.mu.Unlock()
		if h.each != nil {
			h.each(s, c, m)
		} else {
			s.MarkMessage(m, "")
		}
	}
	if s.Context().Err() == nil {
		panic("Messages is closed before the session's context has ended")
	}
	if h.onReturn != nil {
		h.onReturn(c)
	}
	return nil
}

func (h *sessionLog) run(c sarama.ConsumerGroupClaim, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == nil {
		h.running = map[int32]int{}
	}
	if h.running[c.Partition()] += n; h.running[c.Partition()] > 1 {
		h.beside++
	}
}

func (h *sessionLog) setups() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.claims)
}

func (h *sessionLog) count() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.handled {
		n += one
	}
	return n
}

func (h *sessionLog) reads() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.running {
		n += one
	}
	return n
}

// A join and a leave end the sessions of the members whose partitions change: Claims is what is held, and every message is
// handled once.
func TestEagerJoinAndLeave(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.member("a", eager), r.member("b", eager)
		ha, hb := &sessionLog{}, &sessionLog{}
		a.calls(ha)
		r.produce(10)
		until(t, "a has read all", func() bool { return ha.count() == 40 })
		time.Sleep(20 * time.Second)
		b.calls(hb)
		until(t, "both read two", func() bool { return ha.reads() == 2 && hb.reads() == 2 })
		r.produce(10)
		until(t, "all is read", func() bool { return ha.count()+hb.count() == 80 })
		b.leave()
		until(t, "a reads four", func() bool { return ha.reads() == 4 })
		r.produce(10)
		until(t, "all is read", func() bool { return ha.count()+hb.count() == 120 })
		a.leave()
		if got := ha.setups(); len(got) != 3 || got[0] != "[0 1 2 3]" || len(got[1]) != len("[0 1]") || got[2] != "[0 1 2 3]" {
			t.Errorf("a's claims were %v", got)
		}
		if got := hb.setups(); len(got) != 1 || len(got[0]) != len("[0 1]") {
			t.Errorf("b's claims were %v", got)
		}
		if len(ha.causes) != 3 || !errors.Is(ha.causes[0], sarama.ErrRebalanceInProgress) || !errors.Is(ha.causes[1], sarama.ErrRebalanceInProgress) {
			t.Errorf("a's sessions ended with %v", ha.causes)
		}
		if ha.count()+hb.count() != 120 || ha.beside+hb.beside > 0 {
			t.Errorf("%d messages were handled, %d calls were beside another", ha.count()+hb.count(), ha.beside+hb.beside)
		}
		r.check(false)
	})
}

// Marks that are made until Cleanup has returned are stored before the next owner reads: a pool of workers repeats nothing.
func TestEagerMarksUntilCleanup(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.produce(300)
		pool := func() *sessionLog {
			h := &sessionLog{}
			var work chan func()
			var wg sync.WaitGroup
			h.setup = func(sarama.ConsumerGroupSession) error {
				work = make(chan func(), 20)
				in := work
				wg.Go(func() {
					for f := range in {
						f()
					}
				})
				return nil
			}
			h.cleanup = func(sarama.ConsumerGroupSession) error { close(work); wg.Wait(); return nil }
			h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
				work <- func() {
					time.Sleep(5 * time.Millisecond)
					s.MarkMessage(m, "")
				}
			}
			return h
		}
		a, b := r.member("a", eager), r.member("b", eager)
		ha, hb := pool(), pool()
		a.calls(ha)
		until(t, "some", func() bool { return ha.count() > 100 })
		b.calls(hb)
		until(t, "more", func() bool { return ha.count()+hb.count() > 600 })
		b.leave()
		until(t, "all", func() bool {
			return ha.count() > 0 && r.committed(topic, 0)+r.committed(topic, 1)+r.committed(topic, 2)+r.committed(topic, 3) >= 1200
		})
		a.leave()
		if n := ha.count() + hb.count(); n != 1200 {
			t.Errorf("%d messages were handled, 1200 were sent", n)
		}
	})
}

// A slow handler costs the others its own partitions alone: from half of RebalanceTimeout on what moves is released without it.
func TestEagerSlowHandler(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		slow := newGate()
		a, b := r.member("a", eager), r.member("b", eager)
		ha, hb := &sessionLog{}, &sessionLog{}
		ha.onReturn = func(c sarama.ConsumerGroupClaim) {
			if c.Partition() == 0 {
				slow.wait()
			}
		}
		a.calls(ha)
		until(t, "a reads", func() bool { return ha.reads() == 4 })
		time.Sleep(5 * time.Second)
		began := time.Now()
		b.calls(hb)
		until(t, "b reads what it can have", func() bool { return hb.reads() > 0 })
		if d := time.Since(began); d < 35*time.Second || d > 45*time.Second {
			t.Errorf("b reads after %v, want some 40 s", d)
		}
		slow.open()
		until(t, "both read two", func() bool { return ha.reads() == 2 && hb.reads() == 2 })
		quit(a, b)
		r.check(false)
	})
}

// A call that gets no claim calls Setup when its own RebalanceTimeout is over, or ten seconds if that is longer.
func TestEagerSetupWithoutClaims(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{2 * time.Second: 10 * time.Second, 20 * time.Second: 20 * time.Second} {
		inRig(t, 4, func(t *testing.T, r *rig) {
			slow := newGate()
			a := r.member("a", eager)
			b := r.member("b", func(o *consumer.Options) { eager(o); o.RebalanceTimeout = timeout })
			ha, hb := &sessionLog{}, &sessionLog{}
			ha.onReturn = func(sarama.ConsumerGroupClaim) { slow.wait() }
			a.calls(ha)
			until(t, "a reads", func() bool { return ha.reads() == 4 })
			time.Sleep(5 * time.Second)
			began := time.Now()
			b.calls(hb)
			until(t, "b has a session", func() bool { return len(hb.setups()) == 1 })
			if d := time.Since(began); d < want || d > want+time.Second || hb.setups()[0] != "[]" {
				t.Errorf("Setup is called with %v after %v, want [] after %v", hb.setups(), d, want)
			}
			slow.open()
			until(t, "both read two", func() bool { return ha.reads() == 2 && hb.reads() == 2 })
			quit(a, b)
			r.check(false)
		})
	}
}

// Calls that have not returned RebalanceTimeout after the end of the session are abandoned: Consume returns ErrStuck, the others
// get all, whether the plan gives it to them or not, and the next call waits until they have returned. A RebalanceTimeout of less
// than a second will do.
func TestEagerStuckHandler(t *testing.T) {
	for _, where := range []string{"none", "ConsumeClaim", "ConsumeClaim of all", "Setup", "Cleanup"} {
		for _, timeout := range []time.Duration{time.Minute, 300 * time.Millisecond} {
			t.Run(fmt.Sprint(where, " ", timeout), func(t *testing.T) {
				inRig(t, 4, func(t *testing.T, r *rig) { stuckIn(t, r, where, timeout) })
			})
		}
	}
}

func stuckIn(t *testing.T, r *rig, where string, timeout time.Duration) {
	timeouts := func(o *consumer.Options) {
		eager(o)
		if o.RebalanceTimeout = timeout; timeout < time.Second {
			o.StopTimeout = 500 * time.Millisecond
		}
	}
	hung := newGate()
	defer hung.open()
	a, b := r.member("a", timeouts), r.member("b", timeouts)
	ha, hb := &sessionLog{}, &sessionLog{}
	var armed atomic.Bool
	armed.Store(true)
	hang := func(at string) {
		if where == at && armed.CompareAndSwap(true, false) || where == at+" of all" {
			hung.wait()
		}
	}
	ha.setup = func(sarama.ConsumerGroupSession) error { hang("Setup"); return nil }
	ha.cleanup = func(sarama.ConsumerGroupSession) error { hang("Cleanup"); return nil }
	ha.onReturn = func(sarama.ConsumerGroupClaim) { hang("ConsumeClaim") }
	a.calls(ha)
	until(t, "a has its claims", func() bool { return len(ha.setups()) == 1 })
	time.Sleep(5 * time.Second)
	began := time.Now()
	b.calls(hb)
	if where == "none" {
		until(t, "both read two", func() bool { return ha.reads() == 2 && hb.reads() == 2 })
		time.Sleep(10 * time.Second)
		quit(a, b)
		r.check(false)
		return
	}
	if where == "ConsumeClaim of all" { // no claim is kept until the member has left
		if d := until(t, "b reads all", func() bool { return hb.reads() == 4 }); d > timeout+10*time.Second {
			t.Errorf("b reads all after %v", d)
		}
	}
	if err := <-a.done; !errors.Is(err, ownership.ErrStuck) {
		t.Errorf("Consume: %v", err)
	}
	if d := time.Since(began); d < timeout || d > timeout+35*time.Second {
		t.Errorf("Consume returned after %v", d)
	}
	until(t, "b reads all", func() bool { return hb.reads() == 4 })
	a.calls(ha) // it waits
	time.Sleep(2 * time.Minute)
	if n := len(ha.setups()); n != 1 {
		t.Errorf("%d Setups beside what was abandoned", n-1)
	}
	hung.open()
	until(t, "a joins", func() bool { return ha.reads() == 2 && hb.reads() == 2 })
	if ha.beside > 0 {
		t.Errorf("%d calls beside another", ha.beside)
	}
	quit(a, b)
}

// While a call waits after ErrStuck its context ends: it returns.
func TestWaitAfterStuckEndsWithTheContext(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		hung := newGate()
		defer hung.open()
		a := r.member("a", func(o *consumer.Options) { eager(o); o.StopTimeout = 5 * time.Second })
		ha := &sessionLog{onReturn: func(sarama.ConsumerGroupClaim) { hung.wait() }}
		a.calls(ha)
		until(t, "a reads", func() bool { return ha.reads() == 1 })
		a.stop()
		if err := <-a.done; !errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Consume: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := a.group.Consume(ctx, []string{topic}, ha); err != nil {
			t.Errorf("Consume: %v", err)
		}
		if n := len(ha.setups()); n != 1 {
			t.Errorf("%d Setups", n)
		}
	})
}

// Trust ends: the session ends with the reason, nothing is committed, and the next Setup comes when the member is trusted again.
func TestEagerSessionEndsWithTrust(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", eager)
		ha := &sessionLog{}
		a.calls(ha)
		r.produce(5, 0, 1)
		until(t, "a has read", func() bool { return ha.count() == 10 })
		a.net.BlackHole(zktest.Both)
		if took := until(t, "the session ends", func() bool { return ha.reads() == 0 }); took >= a.zk.Timeout() {
			t.Errorf("the session ended %v after ZooKeeper had fallen silent, when others may own the partitions", took)
		}
		time.Sleep(time.Minute)
		if n := len(ha.setups()); n != 1 {
			t.Errorf("%d Setups without trust", n-1)
		}
		a.net.Heal()
		until(t, "a reads again", func() bool { return ha.reads() == 2 })
		a.leave()
		if cause := ha.causes[0]; !errors.Is(cause, sarama.ErrSessionHeartbeatFailed) || !errors.Is(cause, ownership.ErrLost) {
			t.Errorf("the session ended with %v", cause)
		}
	})
}

// A Commit in Setup stores the marks of Setup, and they decide where each partition starts.
func TestEagerCommitInSetup(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		a := r.member("a", eager)
		ha := &sessionLog{}
		var stored int64
		ha.setup = func(s sarama.ConsumerGroupSession) error {
			s.MarkOffset(topic, 0, 7, "")
			s.MarkOffset(topic, 1, 4, "")
			s.Commit()
			stored = r.committed(topic, 0)
			return nil
		}
		a.calls(ha)
		until(t, "the rest is read", func() bool { return ha.count() == 9 })
		a.leave()
		if stored != 7 {
			t.Errorf("Commit in Setup has stored %d", stored)
		}
	})
}

// A session that ends while Setup runs calls no ConsumeClaim, and what Setup has marked is stored, also of what moves.
func TestEagerLossDuringSetup(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		a, b := r.member("a", eager), r.member("b", eager)
		slow := newGate()
		ha, hb := &sessionLog{}, &sessionLog{}
		first := true
		ha.setup = func(s sarama.ConsumerGroupSession) error {
			if first {
				first = false
				s.MarkOffset(topic, 0, 5, "")
				s.MarkOffset(topic, 1, 5, "")
				slow.wait()
				if s.Context().Err() == nil {
					t.Error("the session goes on during Setup")
				}
			}
			return nil
		}
		a.calls(ha)
		until(t, "Setup runs", func() bool { return len(ha.setups()) == 1 })
		b.calls(hb)
		time.Sleep(5 * time.Second)
		slow.open()
		until(t, "both read", func() bool { return ha.reads() == 1 && hb.reads() == 1 && ha.count()+hb.count() >= 10 })
		time.Sleep(time.Second)
		quit(a, b)
		if n := ha.count() + hb.count(); n != 10 {
			t.Errorf("%d messages were handled, want those from 5 on", n)
		}
	})
}
