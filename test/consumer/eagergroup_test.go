package consumer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
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

// A start within a second costs each member three sessions at most.
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
			if got := h.setups(); len(got) > 3 {
				t.Errorf("member %d had %d sessions: %v", i, len(got), got)
			}
		}
		quit(members...)
		r.check(false)
	})
}

// Eager and incremental members share a group.
func TestEagerBesideIncremental(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		all := []int32{0, 1, 2, 3}
		a := r.member("a", eager)
		b := r.member("b", func(o *consumer.Options) {
			o.Config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
		})
		ha, hb := &sessionLog{}, &sessionLog{}
		a.calls(ha)
		until(t, "a reads four", func() bool { return ha.reads() == 4 })
		b.calls(hb)
		until(t, "both read two", func() bool { return ha.reads() == 2 && hb.reads() == 2 })
		r.produce(10, all...)
		until(t, "all is read", func() bool { return ha.count()+hb.count() == 40 })
		a.leave()
		until(t, "b reads four", func() bool { return hb.reads() == 4 })
		b.leave()
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
		for i := range ha.begun[1:] {
			t.Logf("%v: %s", ha.begun[i+1].Sub(ha.begun[0]), ha.claims[i+1])
		}
		time.Sleep(20 * time.Second)
		if n := len(ha.setups()); n > 21 {
			t.Errorf("%d sessions", n)
		}
		a.leave()
		r.check(false)
	})
}
