package consumer_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
)

// The session outlives the trust in it: nobody else may have what is ours, but we can't know, so all stops; then it goes on,
// under the same claims.
func TestTrustLostAndRegainedInTheSameSession(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.produce(20, 0, 1, 2, 3)
		a, b := r.member("a", nil).start(), r.member("b", nil).start()
		until(t, "80 messages", func() bool { return total(a, b) == 80 })
		time.Sleep(2 * time.Second)
		before, id := a.owns(), a.sessionID()
		a.net.Freeze()
		until(t, "a stops", func() bool { return len(a.owns()) == 0 })
		seen := total(a)
		r.produce(20, 0, 1, 2, 3)
		time.Sleep(500 * time.Millisecond)
		if got := total(a); got != seen {
			t.Errorf("a was given %d messages without trust", got-seen)
		}
		a.net.Heal()
		until(t, "a goes on", func() bool { return slices.Equal(a.owns(), before) })
		if a.sessionID() != id {
			t.Fatal("that took a new session, so this test shows nothing")
		}
		until(t, "160 messages", func() bool { return total(a, b) == 160 })
		tokens := map[int32]map[int64]bool{}
		for _, e := range a.log.events() {
			if e.Event == eventlog.Claimed && e.Partition != nil {
				if tokens[*e.Partition] == nil {
					tokens[*e.Partition] = map[int64]bool{}
				}
				tokens[*e.Partition][e.Token] = true
			}
		}
		for p, ts := range tokens {
			if slices.Contains(before, eventPartition(p)) && len(ts) != 1 {
				t.Errorf("partition %d was held under %d tokens", p, len(ts))
			}
		}
		a.leave()
		b.leave()
		r.check(false)
	})
}

func TestLeavingWithAStuckHandler(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		release := make(chan struct{})
		a := r.member("a", func(o *consumer.Options) { o.StopTimeout = 10 * time.Second })
		a.h.before(func(c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
			if c.Partition() == 1 && m.Offset == 4 {
				<-release
			}
		})
		a.start()
		until(t, "one hangs", func() bool { return len(a.h.offsets(topic, 1)) == 5 && len(a.h.offsets(topic, 0)) == 10 })
		time.Sleep(2 * time.Second)
		b := r.member("b", nil)
		start := time.Now()
		a.stop()
		if err := <-a.done; !errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Consume: %v", err)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("Consume returned after %v", d)
		}
		if slices.Contains(a.h.called(), "cleanup") {
			t.Error("Cleanup was called beside a running ConsumeClaim")
		}
		b.start()
		until(t, "b has the rest", func() bool { return total(b) == 6 })
		until(t, "b has committed", func() bool { return r.committed(topic, 1) == 10 })
		events := len(a.log.events())
		close(release)
		time.Sleep(5 * time.Second)
		if got := r.committed(topic, 1); got != 10 {
			t.Errorf("the stuck handler's mark was committed: %d", got)
		}
		if n := len(a.log.events()); n != events {
			t.Errorf("%d events after Consume had returned", n-events)
		}
		b.leave()
	})
}

// Every member loses its session at the same time, again and again.
func TestSessionsOfAllMembersAreKilled(t *testing.T) {
	inRig(t, 6, func(t *testing.T, r *rig) {
		ms := []*member{r.member("a", nil).start(), r.member("b", nil).start(), r.member("c", nil).start()}
		owned := func() int {
			n := 0
			for _, m := range ms {
				n += len(m.owns())
			}
			return n
		}
		until(t, "all are open", func() bool { return owned() == 6 })
		for range 5 {
			for _, s := range r.zk.Sessions() {
				r.zk.KillSession(s.ID)
			}
			r.produce(10)
			time.Sleep(3 * time.Second)
		}
		until(t, "every message", func() bool {
			for _, p := range r.all {
				seen := map[int64]bool{}
				for _, m := range ms {
					for _, o := range m.h.offsets(topic, p) {
						seen[o] = true
					}
				}
				if len(seen) != 50 {
					return false
				}
			}
			return true
		})
		for _, m := range ms {
			m.leave()
			if n := m.setups(); n != 1 { // Consume goes on
				t.Errorf("%s: %d times Setup", m.name, n)
			}
		}
		for _, p := range r.all {
			if got := r.committed(topic, p); got != 50 {
				t.Errorf("committed %d of partition %d", got, p)
			}
		}
	})
}
