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

// Scenario 8: the leader is killed, again and again, and then each server is restarted in turn. Nobody in the group notices.
// How long no write is answered is up to ZooKeeper's election mostly: 0.2 or 0.4 s until it is decided, a little more until
// the new leader serves. What we add is measured too. T is such that trust outlives the election on a busy machine. What we add
// at least in several kills is what the code can do; the rest is what else the machine had to do.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	const (
		timeout = electionT
		kills   = 5
	)
	zk := startEnsemble(t, servers.ZooKeeperOptions{})
	f := newFleet(t, 8, options{zookeeper: join(zk.Addrs()...), timeout: timeout})
	f.startAll(3)
	p := startProbe(t, zk.Addrs(), session.Options{Timeout: timeout})
	inc := incarnation(t, p.Session).Number()
	before := f.tokens()

	// down takes a server down and returns for how long no write was answered, and how long there was no leader.
	down := func(n *servers.ZooKeeperNode, kind string, take func()) (gap, leaderless time.Duration) {
		t.Helper()
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
		return p.gap(at), time.Duration(led - at)
	}
	var gaps, elections, ours []time.Duration
	for range kills {
		leader := awaitLeader(t, zk, nil)
		gap, election := down(leader, "kill -9 of ZooKeeper's leader", leader.Kill)
		gaps, elections, ours = append(gaps, gap), append(elections, election), append(ours, max(0, gap-election))
	}
	t.Attr("killed-until-there-is-a-leader", list(elections))
	median(t, "killed", killedBound, gaps)
	best(t, "killed-ours", killedOursBound, ours)
	stops := map[string][]time.Duration{} // by what the server was
	for _, n := range zk.Nodes() {
		was := n.Mode()
		gap, _ := down(n, "SIGTERM of a ZooKeeper server", n.Stop)
		if was == "follower" {
			f.unnoticed("nobody was connected to it")
		}
		stops[was] = append(stops[was], gap)
	}
	for was, gaps := range stops {
		best(t, "stopped-"+was, stoppedBound, gaps)
	}
	if now := incarnation(t, p.Session).Number(); now != inc {
		t.Errorf("the writing session is in incarnation %d, was in %d", now, inc)
	}
	f.repeatedOnlyAfter(f.finish())
}

// Scenario 9: the leader is frozen. Its followers notice after syncLimit ticks, 2 s, and go on with another. It wakes up
// when sessions would have expired long ago. T is such that trust, which at worst has T/2 to go when the leader freezes,
// outlives that.
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
