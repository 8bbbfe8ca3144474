package consumer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

const (
	staticTimeout = 6 * time.Second // of the sessions of static members
	serverTick    = 2 * time.Second
)

// static makes a process of a static member. The process has a name of its own in the network and in the log.
func (r *rig) static(name, process string, change func(*consumer.Options)) *member {
	r.t.Helper()
	return r.owning(process, func(o *consumer.Options) {
		o.Name, o.Static, o.Session.Timeout = name, true, staticTimeout
		if change != nil {
			change(o)
		}
	})
}

// node returns the owner of a member's znode, 0 if there is none.
func (r *rig) node(name string) int64 {
	_, stat, _ := r.zk.Get("/kiel/groups/" + group + "/members/" + name)
	return stat.EphemeralOwner
}

// claims returns how many claims a ZooKeeper session has.
func (r *rig) claims(session int64) (n int) {
	names := r.zk.Children("/kiel/groups/" + group + "/owners")
	for _, name := range names {
		if _, stat, _ := r.zk.Get("/kiel/groups/" + group + "/owners/" + name); stat.EphemeralOwner == session {
			n++
		}
	}
	return n
}

// stillness is what members are called with until a moment. wantStill checks that nothing came since.
type stillness map[*member]int

func still(members ...*member) stillness {
	s := stillness{}
	for _, m := range members {
		s[m] = len(m.h.called())
	}
	return s
}

func (s stillness) wantStill(t *testing.T) {
	t.Helper()
	for m, n := range s {
		if calls := m.h.called(); len(calls) != n {
			t.Errorf("%s was called: %v", m.name, calls[n:])
		}
	}
}

// bothKinds runs a test with sessions of both kinds.
func bothKinds(t *testing.T, test func(t *testing.T, r *rig, kind func(*consumer.Options))) {
	t.Helper()
	for name, kind := range map[string]func(*consumer.Options){"eager": eager, "incremental": cooperative} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 6, func(t *testing.T, r *rig) { test(t, r, kind) })
		})
	}
}

// three starts a and c, and b, of which processes come and go. All own two partitions.
func (r *rig) three(kind func(*consumer.Options)) (a, b, c *member) {
	r.t.Helper()
	a, b, c = r.member("a", kind), r.static("b", "b-1", kind), r.static("c", "c-1", kind)
	for _, m := range []*member{a, b, c} {
		m.calls(m.h)
	}
	r.wantTwoEach(a, b, c)
	time.Sleep(20 * time.Second) // gains of eager sessions are over
	return a, b, c
}

func (r *rig) wantTwoEach(members ...*member) {
	r.t.Helper()
	until(r.t, "all own two partitions", func() bool {
		for _, m := range members {
			if m.log.holds() != 2 {
				return false
			}
		}
		return true
	})
}

// A static member that is started again in time has its partitions again, and nothing of any other member moves: no session ends,
// and no handler. What came meanwhile is handled once.
func TestStaticRestart(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig, kind func(*consumer.Options)) {
		a, b, c := r.three(kind)
		r.produce(10)
		until(t, "60 messages", func() bool { return total(a, b, c) == 60 })
		before := still(a, c)
		processes := []*member{a, b, c}
		for i := range 3 {
			owner := r.node("b")
			b.leave()
			b.close()
			if r.node("b") != owner || r.claims(owner) != 0 {
				t.Errorf("the stopped process has the membership: %t, and %d claims", r.node("b") == owner, r.claims(owner))
			}
			r.produce(10)
			time.Sleep(4 * time.Second)
			b = r.static("b", fmt.Sprintf("b-%d", i+2), kind)
			b.calls(b.h)
			began := time.Now()
			r.wantTwoEach(a, b, c)
			t.Logf("owned again after %v", time.Since(began))
			processes = append(processes, b)
			until(t, "all messages", func() bool { return total(processes...) == 60*(i+2) })
			time.Sleep(20 * time.Second)
			before.wantStill(t)
		}
		quit(a, b, c)
		r.check(false)
	})
}

// After a crash the next process waits for the old session's end, which is when the claims of the crashed one go. Nothing else
// moves.
func TestStaticCrash(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig, kind func(*consumer.Options)) {
		a, b, c := r.three(kind)
		before := still(a, c)
		old := r.node("b")
		b.net.BlackHole(zktest.Both)
		crashed := time.Now()
		time.Sleep(time.Second)
		next := r.static("b", "b-2", kind)
		next.calls(next.h)
		until(t, "the next process has the membership", func() bool { return r.node("b") != old })
		if took := time.Since(crashed); took > 1500*time.Millisecond {
			t.Errorf("the next process has the membership after %v", took)
		}
		until(t, "the old process has lost all", func() bool { return len(b.owns()) == 0 })
		lost := time.Now()
		if n := r.claims(old); n != 2 {
			t.Errorf("the crashed process has %d claims as it learns that it has lost them", n)
		}
		r.wantTwoEach(a, next, c)
		took := time.Since(crashed)
		t.Logf("lost after %v, owned again %v after the crash", lost.Sub(crashed), took)
		if took < staticTimeout-staticTimeout/6-time.Second || took > staticTimeout+serverTick+time.Second {
			t.Errorf("owned again %v after the crash", took)
		}
		b.stop()
		b.group.Close()
		time.Sleep(20 * time.Second)
		before.wantStill(t)
		quit(a, next, c)
		r.check(false)
	})
}

// The newer one of two processes of one name has it. The older one finishes its work, commits and releases, and its error names
// both. When the newer one stops, the older one goes on at once.
func TestTwoStaticProcesses(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig, kind func(*consumer.Options)) {
		a, older, c := r.three(kind)
		before := still(a, c)
		old := r.node("b")
		r.produce(10, 0, 1, 2, 3, 4, 5)
		newer := r.static("b", "b-2", kind)
		newer.calls(newer.h)
		r.wantTwoEach(a, newer, c)
		if older.log.holds() != 0 {
			t.Errorf("the older process holds %d partitions", older.log.holds())
		}
		until(t, "60 messages", func() bool { return total(a, older, newer, c) == 60 })
		time.Sleep(100 * time.Millisecond)
		named := false
		for _, err := range older.errors() {
			named = named || strings.Contains(err.Error(), fmt.Sprintf("%#x", uint64(old))) && strings.Contains(err.Error(), fmt.Sprintf("%#x", uint64(r.node("b"))))
		}
		if !named {
			t.Errorf("no error of the older process names both sessions: %v", older.errors())
		}
		newer.leave()
		newer.close()
		began := time.Now()
		r.wantTwoEach(a, older, c)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the older process goes on after %v", took)
		}
		before.wantStill(t)
		quit(a, older, c)
		r.check(false)
	})
}

// Only an orderly stop keeps the membership.
func TestStaticMemberThatLeaves(t *testing.T) {
	gone := func(t *testing.T, r *rig) {
		t.Helper()
		if took := until(t, "the membership has ended", func() bool { return r.node("b") == 0 }); took > 100*time.Millisecond {
			t.Errorf("the membership has ended after %v", took)
		}
	}
	t.Run("stuck handler", func(t *testing.T) {
		inRig(t, 2, func(t *testing.T, r *rig) {
			hung := newGate()
			defer hung.open()
			b := r.static("b", "b-1", func(o *consumer.Options) { cooperative(o); o.StopTimeout = 4 * time.Second })
			b.h.ending = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) { hung.wait() }
			b.start()
			until(t, "all is owned", func() bool { return b.log.holds() == 2 })
			b.stop()
			if err := <-b.done; !errors.Is(err, ownership.ErrStuck) {
				t.Errorf("Consume: %v", err)
			}
			gone(t, r)
		})
	})
	t.Run("stuck Cleanup", func(t *testing.T) {
		inRig(t, 2, func(t *testing.T, r *rig) {
			hung := newGate()
			defer hung.open()
			b := r.static("b", "b-1", func(o *consumer.Options) { cooperative(o); o.StopTimeout = 4 * time.Second })
			h := &sessionLog{cleanup: func(sarama.ConsumerGroupSession) error { hung.wait(); return nil }}
			b.startWith(h, topic)
			until(t, "all is owned", func() bool { return b.log.holds() == 2 })
			b.stop()
			if err := <-b.done; !errors.Is(err, ownership.ErrStuck) {
				t.Errorf("Consume: %v", err)
			}
			gone(t, r)
		})
	})
	t.Run("no call of Consume", func(t *testing.T) {
		inRig(t, 2, func(t *testing.T, r *rig) {
			b := r.static("b", "b-1", func(o *consumer.Options) { cooperative(o) })
			b.h.setupErr = errWork
			b.start()
			<-b.done
			time.Sleep(staticTimeout + 100*time.Millisecond)
			gone(t, r)
		})
	})
	t.Run("without Kafka", func(t *testing.T) {
		inRig(t, 2, func(t *testing.T, r *rig) {
			net := &outage{dialer: dialer{r.knet}}
			b := r.static("b", "b-1", func(o *consumer.Options) {
				cooperative(o)
				o.Config.Net.Proxy.Dialer, o.LeaveWithoutKafkaAfter = net, 30*time.Second
			})
			a := r.member("a", nil).start()
			b.start()
			until(t, "all is owned", func() bool { return b.log.holds() == 1 && a.log.holds() == 1 })
			net.begin()
			until(t, "b has left", func() bool { return b.log.count(consumer.Left) == 1 })
			gone(t, r)
			until(t, "a has all", func() bool { return a.log.holds() == 2 })
			net.end()
			until(t, "b is back", func() bool { return b.log.holds() == 1 })
			quit(a, b)
		})
	})
}

// A call of Consume that follows on an orderly stop in the same process takes the membership over, too.
func TestStaticConsumesAgain(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig, kind func(*consumer.Options)) {
		a, b, c := r.three(kind)
		before := still(a, c)
		b.leave()
		time.Sleep(time.Second)
		b.calls(b.h)
		r.wantTwoEach(a, b, c)
		time.Sleep(20 * time.Second)
		before.wantStill(t)
		quit(a, b, c)
		r.check(false)
	})
}
