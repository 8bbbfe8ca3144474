package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// awaitLeader waits until an ensemble has a leader other than one.
func awaitLeader(t *testing.T, zk *servers.ZooKeeper, but *servers.ZooKeeperNode) (leader *servers.ZooKeeperNode) {
	t.Helper()
	wait.Until(t, settleLimit, func() bool {
		for _, n := range zk.Nodes() {
			if n != but && n.Mode() == "leader" {
				leader = n
				return true
			}
		}
		return false
	}, func() string { return "a leader" })
	return leader
}

// Scenario 8: the leader is killed, again and again, and then each server is restarted in turn. Nobody in the group notices. How
// long no write is answered is up to ZooKeeper's election mostly: 0.2 or 0.4 s until it is decided, a little more until the new
// leader serves, and up to twice that on a busy machine, which is no concern of ours. What we add is judged: how long after the
// election the first write is answered, and how long the session pauses between its tries to connect, since a pause is lost time
// if the election ends in it. T is such that trust outlives the election on a busy machine.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	const (
		timeout = electionT
		kills   = 5
	)
	zk := startEnsemble(t, servers.ZooKeeperOptions{})
	f := newFleet(t, 8, options{zookeeper: join(zk.Addrs()...), timeout: timeout})
	f.startAll(3)
	var tries idleness
	p := startProbe(t, zk.Addrs(), session.Options{Timeout: timeout, Dial: tries.dial})
	inc := incarnation(t, p.Session).Number()
	before := f.tokens()

	var elections, ours, pauses []time.Duration // of each leader that was taken down
	// down takes a server down and returns what it was, and for how long no write was answered.
	down := func(n *servers.ZooKeeperNode, kind string, take func()) (was string, gap time.Duration) {
		t.Helper()
		was = n.Mode()
		f.fault(kind)
		at := members.Monotonic()
		take()
		awaitLeader(t, zk, n)
		led := members.Monotonic()
		p.awaitAnswer(t, led)
		n.Start()
		n.WaitReady()
		f.settle()
		f.unmoved(kind, before, at)
		if times, unexcused := f.distrust(at); unexcused > 0 {
			t.Errorf("%s: trust was lost %d times, %d of them while the machine ran as it should", kind, times, unexcused)
		}
		gap = p.gap(at)
		if was == "leader" {
			election := time.Duration(led - at)
			elections, ours, pauses = append(elections, election), append(ours, max(0, gap-election)), append(pauses, tries.longest(at))
		}
		return was, gap
	}
	var killed []time.Duration
	for range kills {
		leader := awaitLeader(t, zk, nil)
		_, gap := down(leader, "kill -9 of ZooKeeper's leader", leader.Kill)
		killed = append(killed, gap)
	}
	stopped := map[string][]time.Duration{} // by what the server was
	for _, n := range zk.Nodes() {
		was, gap := down(n, "SIGTERM of a ZooKeeper server", n.Stop)
		if was == "follower" {
			f.unnoticed("nobody was connected to it")
		}
		stopped[was] = append(stopped[was], gap)
	}
	t.Attr("killed", list(killed))
	t.Attr("stopped-leader", list(stopped["leader"]))
	t.Attr("until-there-is-a-leader", list(elections))
	best(t, "after-the-election", electedBound, ours)
	median(t, "pauses-between-tries", pauseBound, pauses)
	if gaps := stopped["follower"]; len(gaps) > 0 {
		best(t, "stopped-follower", stoppedBound, gaps)
	}
	if now := incarnation(t, p.Session).Number(); now != inc {
		t.Errorf("the writing session is in incarnation %d, was in %d", now, inc)
	}
	f.repeatedOnlyAfter(f.finish())
}

// Scenario 9: the leader is frozen. Its followers notice after syncLimit ticks, 2 s, and go on with another. It wakes up when
// sessions would have expired long ago. T is such that trust, which at worst has T/2 to go when the leader freezes, outlives
// that.
func TestLeaderFrozen(t *testing.T) {
	t.Parallel()
	const (
		timeout = 9 * time.Second
		limit   = timeout*2/3 + time.Second
	)
	zk := startEnsemble(t, servers.ZooKeeperOptions{Config: map[string]string{"syncLimit": "4"}})
	f := newFleet(t, 9, options{zookeeper: join(zk.Addrs()...), timeout: timeout})
	f.startAll(3)
	p := startProbe(t, zk.Addrs(), session.Options{Timeout: timeout})
	id := incarnation(t, p.Session).SessionID()
	leader := awaitLeader(t, zk, nil)
	before := f.tokens()

	f.fault("SIGSTOP of ZooKeeper's leader")
	at := members.Monotonic()
	leader.Pause()
	awaitLeader(t, zk, leader)
	elected := time.Duration(members.Monotonic() - at)
	p.awaitAnswer(t, at+int64(elected))
	wait.Pass(t, 3*timeout/2-time.Duration(members.Monotonic()-at)) // until no session that nobody touched is alive
	f.settle()
	gap, lost := p.gap(at), f.unmoved("frozen", before, at)
	t.Attr("frozen", fmt.Sprintf("no answer for %v, another leader after %v, trust lost %d times",
		ms(gap), ms(elected), lost))
	if gap > limit {
		t.Errorf("no write was answered for %v, want %v at most", gap, limit)
	}

	woken := members.Monotonic()
	leader.Resume()
	wait.Until(t, settleLimit, func() bool { return leader.Mode() == "follower" },
		func() string { return "the old leader is " + leader.Mode() })
	t.Attr("woken", fmt.Sprintf("follows after %v", ms(time.Duration(members.Monotonic()-woken))))
	f.settle()
	f.unmoved("woken", before, at)
	if now := incarnation(t, p.Session).SessionID(); now != id {
		t.Error("the writing session was lost")
	}
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}
