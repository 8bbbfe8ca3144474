package chaos_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// crashBound is how long partitions of a crashed member may have no owner, with room for a busy machine; what is promised is
// a second more than T and a tick.
const crashBound = timeout + tick + 3*time.Second

// Scenario 5: members are killed, one and then half of those that are left.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, options{})
	m := f.startAll(4)
	for _, r := range []measured{
		f.measure("one-of-4", m[0].Kill),
		f.measure("one-of-3", m[1].Kill),
	} {
		if r.owned > crashBound {
			t.Errorf("all is owned again after %v, want %v at most", r.owned, crashBound)
		}
	}
	f.start("m4")
	f.start("m5")
	f.settle()
	if r := f.measure("half-of-4", func() { m[2].Kill(); m[3].Kill() }); r.owned > crashBound {
		t.Errorf("all is owned again after %v, want %v at most", r.owned, crashBound)
	}
	f.repeatedOnlyAfter(f.finish(), "killed")
}

// Scenario 6: a member leaves in order.
func TestLeaves(t *testing.T) {
	t.Parallel()
	f := newFleet(t, options{})
	m := f.startAll(3)
	f.measure("one-of-3", m[0].Stop)
	f.measure("one-of-2", m[1].Stop)
	report := f.finish()
	t.Attr("longest-without-owner", report.LongestUnheld.String())
	f.repeatedOnlyAfter(report)
}

// Scenario 7: all members are restarted, one after the other, again and again.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const rounds = 5
	f := newFleet(t, options{})
	m := f.startAll(3)
	claimed := func() (n int) {
		for _, m := range f.all {
			n += m.count[eventlog.Claimed]
		}
		return n
	}
	most := 0
	for round := range rounds {
		before := claimed()
		for i := range m {
			m[i].Stop()
			m[i] = f.start(fmt.Sprintf("m%d", i))
			f.settle()
		}
		moves := claimed() - before
		if most = max(most, moves); moves < f.opts.partitions {
			t.Errorf("round %d: only %d partitions moved", round, moves)
		}
	}
	report := f.finish()
	t.Attr("rounds", fmt.Sprintf("%d of %d restarts, at most %d moves of %d partitions in a round, longest without owner %v",
		rounds, len(m), most, f.opts.partitions, report.LongestUnheld))
	f.repeatedOnlyAfter(report)
}

// Scenario 4: a member is frozen, for half a session timeout and for two.
func TestFrozen(t *testing.T) {
	t.Parallel()
	// Handlers nearly always have a message in hand, and the next is on offer.
	f := newFleet(t, options{beat: 25 * time.Millisecond, flags: []string{"--work", "20ms"}})
	page := newPage(t)
	victim := f.start("victim", with("--metrics", page.addr))
	f.start("m1")
	f.start("m2")
	f.settle()

	// Half a session timeout: the session lives on, nobody else notices.
	at := victim.Pause()
	wait.Pass(t, f.opts.timeout/2)
	victim.Resume()
	f.settle()
	f.until("the frozen member works", func() bool {
		_, ok := victim.after(members.Monotonic()-int64(time.Second), eventlog.Message)
		return ok
	})
	half := f.since(at)
	t.Attr("half-T", fmt.Sprintf("%v, trust lost %d times", half, victim.countAfter(at, eventlog.Untrusted)))
	if half.rebalances != 0 || victim.sessions() != 1 {
		t.Errorf("frozen for half of T: %d rebalances, %d sessions, want none and 1", half.rebalances, victim.sessions())
	}

	wait.Pass(t, f.opts.timeout/2) // in which it proves its session alive, so that the second time counts from its beginning

	// Two of them: others take over, and it takes its hands off at once when it wakes.
	at = victim.Pause()
	wait.Pass(t, 2*f.opts.timeout)
	f.settle() // the others have it all
	f.t.Attr("two-T-taken-over", f.since(at).String())
	woken := victim.Resume()
	f.settle()
	f.t.Attr("two-T-back", f.since(woken).String())
	late := f.proveSilence(victim, woken)
	t.Attr("two-T-woken", fmt.Sprintf("%d messages handed out before it had proved itself again, %v commits refused",
		late, page.sum(t, "kiel_consumer_commits_total", `result="fenced"`)))
	if victim.sessions() != 2 {
		t.Errorf("frozen for two T: %d sessions, want 2", victim.sessions())
	}
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}

// proveSilence looks at what a member did from the moment at which it woke until it owned something again: at most one
// message of each partition, which was on offer, and no commit. It returns the number of messages.
func (f *fleet) proveSilence(m *member, woken int64) (late int) {
	f.t.Helper()
	handed := map[int32]int{}
	for _, e := range m.events {
		if e.T < woken {
			continue
		}
		switch e.Event {
		case eventlog.Claimed:
			return late
		case eventlog.Message:
			late++
			if handed[*e.Partition]++; handed[*e.Partition] > 1 {
				f.t.Errorf("partition %d: a second message was handed out, %d", *e.Partition, *e.Offset)
			}
		case eventlog.Committed:
			if e.Since >= woken {
				f.t.Errorf("partition %d: offset %d was committed", *e.Partition, *e.Offset)
			}
		}
	}
	f.t.Error("it never owned anything again")
	return late
}

// Scenario 17: a second process of a name that is taken, and one that is started again before its session has ended.
func TestNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, options{})
	m := f.startAll(2)

	at := members.Monotonic()
	f.fault("duplicate name")
	second := f.start("m1")
	second.down = true
	select {
	case <-second.Done():
	case <-time.After(settleLimit):
		t.Fatal("the second process of a name lives on")
	}
	second.over = true
	took := time.Duration(members.Monotonic() - at)
	f.read()
	others := f.since(at)
	t.Attr("duplicate", fmt.Sprintf("gives up after %v, %v", ms(took), others))
	if err := second.Wait(); err == nil || !strings.Contains(second.Log(), "name is taken") {
		t.Errorf("the second process ended with %v: %s", err, second.Log())
	}
	if others.rebalances > 0 || m[1].countAfter(at, eventlog.Untrusted)+m[1].countAfter(at, eventlog.Revoking) > 0 {
		t.Errorf("the first was disturbed: %v", others)
	}
	if took > f.opts.timeout+tick+5*time.Second {
		t.Errorf("it took %v to give up, want %v", took, f.opts.timeout+tick)
	}

	r := f.measure("restart-with-the-same-name", func() {
		m[1].Kill()
		f.start("m1")
	})
	if r.owned > crashBound {
		t.Errorf("all is owned again after %v, want %v at most", r.owned, crashBound)
	}
	f.repeatedOnlyAfter(f.finish(), "killed")
}

// Scenarios 8 and 17 together: while a member that is started again waits for its old self to go, the leader changes, which
// gives the old session its time again.
func TestNameWhileTheLeaderChanges(t *testing.T) {
	t.Parallel()
	zk := startEnsemble(t, servers.ZooKeeperOptions{})
	f := newFleet(t, options{zookeeper: strings.Join(zk.Addrs(), ",")})
	m := f.startAll(2)
	r := f.measure("restart-and-two-leaders", func() {
		m[1].Kill()
		f.start("m1")
		for range 2 {
			wait.Pass(t, f.opts.timeout/2)
			f.fault("restart of a server")
			leader := zk.Leader()
			if leader == nil {
				t.Fatal("nobody leads")
			}
			leader.Stop()
			leader.Start()
		}
	})
	if r.owned > f.opts.timeout+crashBound {
		t.Errorf("all is owned again after %v", r.owned)
	}
	f.repeatedOnlyAfter(f.finish(), "killed")
}
