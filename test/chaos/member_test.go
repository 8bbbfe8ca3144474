package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// Scenario 5: members are killed, one and then half of those that are left.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, options{})
	m := f.startAll(4)
	first, second := f.measure("one-of-4", m[0].Kill), f.measure("one-of-3", m[1].Kill)
	f.start("m4")
	f.start("m5")
	f.settle()
	crashed(t, "owned-after", first, second, f.measure("half-of-4", func() { m[2].Kill(); m[3].Kill() }))
	f.repeatedOnlyAfter(f.finish(), "killed")
}

// Scenario 6: members leave in order, and others join.
func TestLeaves(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 6, options{})
	m := f.startAll(4)
	var left, joined []time.Duration
	for i := range 3 {
		wait.Pass(t, aftermath) // a change soon after another waits for more of them
		left = append(left, f.measure(fmt.Sprintf("one-of-%d", 4-i), m[i].Stop).owned)
	}
	for i := range 3 {
		wait.Pass(t, aftermath)
		newcomer := f.start(fmt.Sprintf("newcomer%d", i))
		f.settle()
		e, _ := newcomer.after(0, eventlog.Joined)
		joined = append(joined, f.since(e.T).owned)
	}
	best(t, "left", moveBound, left)
	best(t, "joined", moveBound, joined)
	report := f.finish()
	t.Attr("longest-without-owner", report.LongestUnheld.String())
	f.repeatedOnlyAfter(report)
}

// Scenario 7: all members are restarted, one after the other, again and again.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const rounds = 5
	f := newFleet(t, 7, options{})
	m := f.startAll(3)
	claimed := func() (n int) {
		for _, m := range f.all {
			n += m.count[eventlog.Claimed]
		}
		return n
	}
	// 2 moves of each partition in a round are for functions that move little; kiel's moves most of them each time.
	limit := 0
	for _, name := range []string{"m0", "m1", "m2"} {
		limit += 2 * len(f.moved(name, "m0", "m1", "m2"))
	}
	most := 0
	var silences []time.Duration
	for round := range rounds {
		before, begun := claimed(), members.Monotonic()
		for i := range m {
			m[i].Stop()
			m[i] = f.start(fmt.Sprintf("m%d", i))
			f.settle()
			f.unnoticed("it may be back, under its name, before the others take the next view")
		}
		moves := claimed() - before
		if most = max(most, moves); moves < f.opts.partitions || moves > limit {
			t.Errorf("round %d: %d partitions moved, want %d to %d", round, moves, f.opts.partitions, limit)
		}
		silences = append(silences, f.silences(begun).longest())
	}
	best(t, "longest-silence-of-a-partition", silenceBound, silences)
	report := f.finish()
	t.Attr("rounds", fmt.Sprintf("%d of %d restarts, at most %d moves of %d partitions in a round, longest without owner %v",
		rounds, len(m), most, f.opts.partitions, report.LongestUnheld))
	f.repeatedOnlyAfter(report)
}

// Scenario 4: a member is frozen, for half a session timeout and for two.
func TestFrozen(t *testing.T) {
	t.Parallel()
	// Handlers nearly always have a message in hand, and the next waits for them.
	f := newFleet(t, 4, options{beat: 25 * time.Millisecond, flags: []string{"--work", "20ms"}})
	page, links := newPage(t), proxy.To(t, sharedZooKeeper(t).Addrs())
	victim := f.start("victim", with("--metrics", page.addr), via(join(links.Addrs()...)))
	second := f.start("second")
	f.start("m1")
	f.start("m2")
	f.settle()

	// Half a session timeout: the session lives on, nobody else notices.
	before := f.tokens()
	f.keepsTrust("half-T", links, func() (at int64) {
		at = victim.Pause()
		wait.Pass(t, f.opts.timeout/2)
		woken := victim.Resume()
		f.until("the frozen member works", func() bool {
			_, ok := victim.after(woken, eventlog.Done)
			return ok && f.owned()
		})
		wait.Pass(t, f.opts.timeout/2) // in which it proves its session alive, so that the next time counts from its beginning
		f.settle()
		f.unmoved("half of T", before, at)
		return at
	})

	// Two of them: others take over, and it takes its hands off at once when it wakes.
	bestOf(t, "two-T-owned-after", crashBound, func() time.Duration { return f.takesHandsOff(victim, second, page) })
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}

// takesHandsOff freezes two members for two session timeouts, and says that others take over and that the two do nothing when
// they wake. Page has the metrics of the first. It returns how long it took until all was owned by others.
func (f *fleet) takesHandsOff(victim, second *member, page page) time.Duration {
	f.t.Helper()
	refused := func() float64 { return page.sum(f.t, "kiel_consumer_commits_total", `result="fenced"`) }
	sessions, before := victim.sessions(), refused()
	f.until("something waits for the next commit", func() bool { return victim.waitsForCommit(members.Monotonic()) })
	over := f.measure("two T taken over", func() {
		victim.Pause()
		second.Pause()
		wait.Pass(f.t, 2*f.opts.timeout)
	})
	var woken int64
	f.measure("two T back", func() { woken = min(victim.Resume(), second.Resume()) })
	late := max(f.proveSilence(victim, woken), f.proveSilence(second, woken))
	dropped, counted := victim.unstored(woken), refused()-before
	f.attr("two-T-woken", fmt.Sprintf("%d messages handed out before it had proved itself again, %v commits refused, of %d partitions",
		late, counted, len(dropped)))
	if len(dropped) == 0 || counted < float64(len(dropped)) {
		f.t.Errorf("%v commits were refused, and there were messages to commit of the partitions %d", counted, dropped)
	}
	if n := victim.sessions() - sessions; n != 1 {
		f.t.Errorf("frozen for two T: %d new sessions, want 1", n)
	}
	return over.owned
}

// keepsTrust says that nobody loses his trust by something that lasts for half a session timeout. So long is what is left of it,
// if the last proof that the session is alive was as old as it may be, T/6, and what comes after it takes no time. So it begins
// right after such a proof, which passes a member's links, and has T/6 for what comes after it; if the machine needs longer there
// are some tries.
func (f *fleet) keepsTrust(name string, links proxy.Links, do func() (since int64)) {
	f.t.Helper()
	lost := 0
	for try := 1; try <= tries; try++ {
		f.proves(links)
		at := do()
		if lost, _ = f.distrust(at); lost == 0 {
			f.unnoticed("it is over before anybody doubts the session")
			f.t.Attr(name, fmt.Sprintf("trust kept, try %d", try))
			return
		}
	}
	f.t.Errorf("%s: trust was lost %d times, each of %d times", name, lost, tries)
}

// proves waits until a member has proved by its links that its session is alive, and a moment for the answer.
func (f *fleet) proves(links proxy.Links) {
	f.t.Helper()
	var asked atomic.Bool
	links.LoseReply(func(r proxy.Request) bool { // it loses none
		if r.Op == proxy.OpMulti && r.First == proxy.OpCheck {
			asked.Store(true)
		}
		return false
	})
	wait.Until(f.t, settleLimit, asked.Load, func() string { return "a session is proved to be alive" })
	wait.Pass(f.t, f.opts.timeout/40)
}

// proveSilence looks at what a member did from the moment at which it woke until it owned something again: it may not commit. It
// returns how many messages of a partition it handed out, at most. What was about to be handed out in the very moment of the stop
// is in the log later: one of each partition, since each has a goroutine that hands out one after the other.
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
			handed[*e.Partition]++
			if late = max(late, handed[*e.Partition]); handed[*e.Partition] > 1 {
				f.t.Errorf("partition %d: offset %d was handed out before %s had proved itself again", *e.Partition, *e.Offset, m.Name)
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

// waitsForCommit says whether a member has done with a message after its last commit, which is not so long ago that the next is
// near. It commits once a second.
func (m *member) waitsForCommit(now int64) bool {
	for _, e := range slices.Backward(m.events) {
		if e.Event == eventlog.Committed {
			return now-e.T < int64(time.Second/2) && len(m.unstored(now)) > 0
		}
	}
	return false
}

// unstored lists the partitions of which a member had done with messages that it had not committed, when it took its hands off
// after it had woken; or has, if it has not yet.
func (m *member) unstored(woken int64) (list []int32) {
	done, stored := map[int32]int64{}, map[int32]int64{}
	for _, e := range m.events {
		if e.T > woken && e.Event == eventlog.Claimed {
			break
		}
		switch e.Event {
		case eventlog.Done:
			done[*e.Partition] = *e.Offset + 1
		case eventlog.Committed:
			stored[*e.Partition] = *e.Offset
		case eventlog.Releasing, eventlog.Lost: // it does not have it any more
			delete(done, *e.Partition)
		case eventlog.Untrusted:
			if e.T < woken {
				clear(done)
			}
		}
	}
	for id, next := range done {
		if next > stored[id] {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// Scenario 17: a second process of a name that is taken, and one that is started again before its session has ended.
func TestNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 17, options{})
	m := f.startAll(2)

	bestOf(t, "duplicate-gives-up-after", nameBound, func() time.Duration {
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
		f.noticed() // by who is to give up
		took := time.Duration(members.Monotonic() - at)
		if err := second.Wait(); err == nil || !strings.Contains(second.Log(), "name is taken") {
			t.Errorf("the second process ended with %v: %s", err, second.Log())
		}
		f.read()
		if now := f.since(at); now.rebalances > 0 || len(f.stopped(at)) > 0 {
			t.Errorf("others were disturbed: %v, stopped %d", now, f.stopped(at))
		}
		f.settle()
		return took
	})

	bestOf(t, "restart-with-the-same-name", crashBound, func() time.Duration {
		m[1].Kill()
		m[1] = f.start("m1")
		f.settle()
		return f.measured().owned
	})
	f.repeatedOnlyAfter(f.finish(), "killed")
}

// Scenarios 8 and 17 together: while a member that is started again waits for its old self to go, the leader changes, which gives
// the old session its time again.
func TestNameWhileTheLeaderChanges(t *testing.T) {
	t.Parallel()
	zk := startEnsemble(t, servers.ZooKeeperOptions{})
	f := newFleet(t, 17, options{zookeeper: strings.Join(zk.Addrs(), ",")})
	m := f.startAll(2)
	bestOf(t, "owned-after-the-second", crashBound, func() time.Duration {
		m[1].Kill()
		m[1] = f.start("m1")
		for range 2 {
			wait.Pass(t, f.opts.timeout/2)
			for _, n := range zk.Nodes() {
				n.WaitReady() // the one that was restarted too: without it there would be no quorum
			}
			f.fault("restart of a server")
			leader := awaitLeader(t, zk, nil)
			leader.Stop()
			leader.Start()
		}
		awaitLeader(t, zk, nil) // who gives the old session its time again
		f.healed()
		f.settle()
		return f.measured().owned
	})
	f.repeatedOnlyAfter(f.finish(), "killed")
}
