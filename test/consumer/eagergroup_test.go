package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// A swap of partitions between two members is over before a call has waited for its claims.
func TestEagerSwap(t *testing.T) {
	inRig(t, 8, func(t *testing.T, r *rig) {
		members := []*member{}
		logs := []*sessionLog{}
		for i := range 3 {
			h := &sessionLog{}
			logs, members = append(logs, h), append(members, r.member(string(rune('a'+i)), eager).calls(h))
			until(t, "all is read", func() bool {
				n := 0
				for _, h := range logs {
					n += h.reads()
				}
				return n == 8
			})
			time.Sleep(10 * time.Second)
		}
		began := time.Now()
		members[0].leave()
		until(t, "all is read", func() bool { return logs[1].reads()+logs[2].reads() == 8 })
		if d := time.Since(began); d >= 900*time.Millisecond {
			t.Errorf("all is read after %v: a call has waited for what it does not get", d)
		}
		quit(members[1:]...)
		r.check(false)
	})
}

// A start within a second costs each member two sessions at most, and none begins without claims.
func TestEagerStartOfMany(t *testing.T) {
	inRig(t, 16, func(t *testing.T, r *rig) {
		var members []*member
		var logs []*sessionLog
		for i := range 8 {
			h := &sessionLog{}
			logs, members = append(logs, h), append(members, r.member(string(rune('a'+i)), eager).calls(h))
			time.Sleep(100 * time.Millisecond)
		}
		until(t, "all is read", func() bool {
			n := 0
			for _, h := range logs {
				n += h.reads()
			}
			return n == 16
		})
		time.Sleep(5 * time.Second)
		for i, h := range logs {
			if got := h.setups(); len(got) > 2 || slices.Contains(got, "[]") {
				t.Errorf("member %d had these sessions: %v", i, got)
			}
		}
		quit(members...)
		r.check(false)
	})
}

// A call that has no claim yet waits for one, on a link on which one takes two seconds too: a session without claims would end at
// once, and a program that calls Consume once would be without partitions from then on.
func TestEagerStartOnASlowLink(t *testing.T) {
	inRig(t, 16, func(t *testing.T, r *rig) {
		h := &sessionLog{}
		m := r.member("a", eager)
		m.net.Delay(500 * time.Millisecond)
		m.calls(h)
		until(t, "all is read", func() bool { return h.reads() == 16 })
		if got := h.setups(); len(got) != 1 {
			t.Errorf("it had these sessions: %v", got)
		}
		quit(m)
		r.check(false)
	})
}

// cooperative gives a member the sessions of sarama's cooperative strategy.
func cooperative(o *consumer.Options) {
	o.Config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
}

// Eager and incremental members share a group. What the incremental one loses and gains does not end its session.
func TestEagerBesideIncremental(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b, c := r.member("a", eager), r.member("b", cooperative), r.member("c", eager)
		ha, hb, hc := &sessionLog{}, &sessionLog{}, &sessionLog{}
		a.calls(ha)
		until(t, "a reads four", func() bool { return ha.reads() == 4 })
		b.calls(hb)
		until(t, "both read two", func() bool { return ha.reads() == 2 && hb.reads() == 2 })
		r.produce(10)
		until(t, "all is read", func() bool { return ha.count()+hb.count() == 40 })
		a.leave()
		until(t, "b reads four", func() bool { return hb.reads() == 4 })
		c.calls(hc)
		until(t, "both read two", func() bool { return hb.reads() == 2 && hc.reads() == 2 })
		r.produce(10)
		until(t, "all is read", func() bool { return ha.count()+hb.count()+hc.count() == 80 })
		quit(b, c)
		if len(hb.begun) != 1 {
			t.Errorf("the incremental member had %d sessions", len(hb.begun))
		}
		r.check(false)
	})
}

// A gain ends no session that is younger than a second, or up to ten when they follow each other fast; a loss does at once.
func TestEagerGainsFollowEachOther(t *testing.T) {
	inRig(t, 8, func(t *testing.T, r *rig) {
		a := r.member("a", eager)
		ha := &sessionLog{}
		a.calls(ha)
		until(t, "a reads", func() bool { return ha.reads() == 8 })
		time.Sleep(20 * time.Second)
		for i := range 10 {
			b := r.member(fmt.Sprint("b", i), eager)
			hb := &sessionLog{}
			b.calls(hb)
			until(t, "b reads", func() bool { return hb.reads() > 0 })
			b.leave()
			b.close()
		}
		until(t, "a reads all", func() bool { return ha.reads() == 8 })
		time.Sleep(20 * time.Second)
		n := len(ha.begun)
		for i := range ha.begun[1:] {
			t.Logf("%v: %s", ha.begun[i+1].Sub(ha.begun[0]), ha.claims[i+1])
		}
		if d := ha.begun[n-2].Sub(ha.begun[0]); d > 25*time.Second {
			t.Errorf("the last loss has ended its session %v after the first, which has waited for something", d)
		}
		if d := ha.begun[n-1].Sub(ha.begun[n-2]); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("the last gain has ended a session that was %v old, want 10 s", d)
		}
		if n > 12 {
			t.Errorf("%d sessions, want one for each loss, and one when that is over", n)
		}
		a.leave()
		r.check(false)
	})
}

// A gain during Setup ends the session as a loss does: no ConsumeClaim is called, and the next Setup has what was gained.
func TestEagerGainDuringSetup(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a, b := r.member("a", eager), r.member("b", eager)
		slow := newGate()
		defer slow.open()
		ha, hb := &sessionLog{}, &sessionLog{}
		ha.setup = func(s sarama.ConsumerGroupSession) error {
			if len(ha.setups()) == 1 {
				slow.wait()
				if cause := context.Cause(s.Context()); !errors.Is(cause, sarama.ErrRebalanceInProgress) {
					t.Errorf("the session of the first Setup has ended with %v", cause)
				}
			}
			return nil
		}
		b.calls(hb)
		until(t, "b reads two", func() bool { return hb.reads() == 2 })
		a.calls(ha)
		until(t, "Setup runs", func() bool { return len(ha.setups()) == 1 })
		time.Sleep(5 * time.Second)
		b.leave()
		time.Sleep(5 * time.Second)
		slow.open()
		until(t, "a reads two", func() bool { return ha.reads() == 2 })
		if got := ha.setups(); len(got) != 2 || len(got[0]) != len("[0]") || got[1] != "[0 1]" {
			t.Errorf("a's claims were %v", got)
		}
		a.leave()
		r.check(false)
	})
}

// State of partitions that Setup loads for Claims is right while messages come all the time and members join, leave and join
// again.
func TestEagerStateOfSetup(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		store := &stateStore{counts: map[int32]int{}}
		a, b := r.member("a", eager), r.member("b", eager)
		a.calls(store.handler(t, a.log.done))
		sent := 0
		send := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
				r.produce(1, 0, 1, 2, 3)
				sent += 4
			}
		}
		send(5 * time.Second)
		b.calls(store.handler(t, b.log.done))
		send(5 * time.Second)
		b.leave()
		send(5 * time.Second)
		until(t, "all is handled", func() bool { return store.handled() >= sent })
		quit(a)
		if n := store.sum(); n != sent || store.handled() != sent {
			t.Errorf("%d messages were sent, %d handled, the store counts %d", sent, store.handled(), n)
		}
		r.check(false)
	})
}

// stateStore counts the messages of partitions. Its handlers read the counts in Setup, and write them with each message.
type stateStore struct {
	mu     sync.Mutex
	counts map[int32]int
	calls  int
}

func (st *stateStore) handler(t *testing.T, done func(*sarama.ConsumerMessage)) *sessionLog {
	mine := map[int32]int{}
	return &sessionLog{
		setup: func(s sarama.ConsumerGroupSession) error {
			st.mu.Lock()
			defer st.mu.Unlock()
			clear(mine)
			for _, id := range s.Claims()[topic] {
				mine[id] = st.counts[id]
			}
			return nil
		},
		each: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			st.mu.Lock()
			defer st.mu.Unlock()
			if _, ok := mine[c.Partition()]; !ok {
				t.Errorf("ConsumeClaim of %d finds no state", c.Partition())
			}
			mine[c.Partition()]++
			st.counts[c.Partition()] = mine[c.Partition()]
			st.calls++
			s.MarkMessage(m, "")
			done(m)
		},
	}
}

func (st *stateStore) handled() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.calls
}

func (st *stateStore) sum() (n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, one := range st.counts {
		n += one
	}
	return n
}

// Work that is done under the session's context ends when trust does, before another member may own the partition. So it is in
// eager and in incremental sessions.
func TestWorkUnderTheContextEndsWithTrust(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig, kind func(*consumer.Options)) {
		r.produce(1)
		a := r.member("a", kind)
		began, ended := make(chan struct{}, len(r.all)), make(chan error, len(r.all))
		work := &sessionLog{each: func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, _ *sarama.ConsumerMessage) {
			began <- struct{}{}
			select {
			case <-s.Context().Done():
				ended <- context.Cause(s.Context())
			case <-time.After(time.Minute):
				ended <- errors.New("it goes on for a minute")
			}
		}}
		a.calls(work)
		for range r.all {
			<-began
		}
		a.net.BlackHole(zktest.Both)
		silent := time.Now()
		for range r.all {
			if err := <-ended; !errors.Is(err, ownership.ErrLost) {
				t.Errorf("the work ended with %v", err)
			}
		}
		if d := time.Since(silent); d >= a.zk.Timeout() {
			t.Errorf("the work ended %v after ZooKeeper had fallen silent", d)
		}
		a.net.Heal()
		quit(a)
	})
}
