package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
)

// cutServer runs a group of three on an ensemble behind proxies, with one member that knows one server only, cuts that server
// off, and heals when the others own everything.
func cutServer(t *testing.T, scenario int, timeout time.Duration, opts servers.ZooKeeperOptions,
	which func(*proxy.Ensemble) int, cut func(*proxy.Ensemble, int),
) {
	e := proxy.StartEnsemble(t, opts)
	index := which(e)
	rest := without(e.Addrs(), index)
	f := newFleet(t, scenario, options{zookeeper: join(rest...), timeout: timeout})
	victim := f.start("victim", via(e.Addrs()[index]))
	f.start("m1")
	f.start("m2")
	f.settle()
	gone := watchGone(t, rest, memberPath(f.topic, victim.Name))

	var at int64
	f.measure("taken-over", func() {
		at = members.Monotonic()
		f.fault("server cut off from the others")
		cut(e, index)
		victim.paused = true
		f.stopsBefore(victim, at, gone())
	})
	f.measure("healed", func() {
		e.Heal()
		victim.paused = false
	})
	if victim.sessions() != 2 {
		t.Errorf("the member that was cut off had %d sessions, want 2", victim.sessions())
	}
	for _, m := range f.all {
		if _, n := m.distrust(at); m != victim && n != 0 {
			t.Errorf("%s lost its trust %d times", m.Name, n)
		}
	}
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}

// Scenario 3: a follower is cut off from its leader. It answers the reads of the member that is connected to it for longer than
// that member's session lives.
func TestFollowerCutOff(t *testing.T) {
	t.Parallel()
	cutServer(t, 3, timeout, servers.ZooKeeperOptions{TickTime: tick, Config: map[string]string{"syncLimit": "12"}},
		(*proxy.Ensemble).FollowerIndex,
		(*proxy.Ensemble).CutFollower)
}

// The leader is cut off on one side only: its followers see resets and elect another, it sees silence and answers reads and syncs
// for syncLimit + 1 ticks more.
func TestLeaderCutOnOneSide(t *testing.T) {
	t.Parallel()
	const timeout = 6 * time.Second // the others' trust is to outlive the election on a busy machine
	for _, syncLimit := range []int{5, 10} {
		t.Run(fmt.Sprintf("syncLimit-%d", syncLimit), func(t *testing.T) {
			t.Parallel()
			config := map[string]string{"syncLimit": fmt.Sprint(syncLimit)}
			cutServer(t, 3, timeout, servers.ZooKeeperOptions{TickTime: time.Second, Config: config},
				(*proxy.Ensemble).LeaderIndex,
				func(e *proxy.Ensemble, _ int) { e.CutLeaderOneSide() })
		})
	}
}
