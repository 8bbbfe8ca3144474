package attacks_test

import (
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

const (
	realTimeout = 4 * time.Second
	realTick    = 500 * time.Millisecond
	expiry      = realTimeout + realTick + 5*time.Second // within that, whatever else the machine does
)

// The executions that need no ensemble, on a real server: §2, §3 and §6 of the table in doc.go. Each is a group of its own, and
// they run at the same time.
func TestOnARealServer(t *testing.T) {
	t.Parallel()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: realTick})
	addrs := []string{zk.Addr()}
	for name, run := range map[string]func(t *testing.T, s *site) *outcome{
		"release outlives its session": realRelease,
		"caller gave up":               realGaveUp,
		"epoch changed":                func(t *testing.T, s *site) *outcome { return foreignEpoch(t, s.group, s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withstood(t, run(t, newSite(t, groupOf(t), addrs)))
		})
	}
	t.Run("version is no identity", func(t *testing.T) {
		t.Parallel()
		for name, compare := range map[string]bool{"on": true, "off": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, groupOf(t), addrs)
				if o := oldCommit(t, s.group, s, compare); compare {
					withstood(t, o)
				} else {
					broken(t, overwritten, o)
				}
			})
		}
	})
}

// realRelease is TestReleaseOutlivesItsSession.
func realRelease(t *testing.T, s *site) *outcome {
	opts := options{session: session.Options{Timeout: realTimeout}, handler: drainFor(500 * time.Millisecond)}
	old := s.member("b", opts)
	old.owns(expiry, "0")
	heir := s.member("a", options{session: opts.session})
	s.within(expiry, "b is told to release", func() bool { return old.journal.count(eventlog.Revoking) == 1 })
	s.links["b"].Refuse()
	heir.owns(2*expiry, "0")
	wait.Pass(t, 4*realTick) // in which nothing may come from b
	s.heal()
	ses := int64(0)
	s.within(expiry, "b is back", func() bool { ses = old.sessionID(); return ses != 0 })
	wait.Pass(t, 4*realTick) // for what b had queued
	o := s.close()
	if heir.journal.count(eventlog.Lost) > 0 {
		o.harmed(claimLost, "the heir's claim was removed by the release of a session that is over")
	}
	return o
}

// realGaveUp is TestClaimWhoseCallerGaveUp.
func realGaveUp(t *testing.T, s *site) *outcome {
	opts := options{session: session.Options{Timeout: realTimeout}}
	opts = s.on("b", opts)
	lost := s.links["b"].LoseReply(func(r proxy.Request) bool { return r.Op == proxy.OpMulti && r.First == proxy.OpSetData })
	old := s.join("b", opts)
	<-lost
	s.links["b"].Refuse()
	heir := s.member("a", options{session: opts.session})
	s.within(expiry, "a has joined", func() bool { return heir.journal.count(eventlog.Joined) == 1 })
	s.links["b"].Heal()
	took, owned := poll(3*realTimeout, func() bool { return heir.owned() == "0" })
	if n := old.session.Stats().Expirations; n > 0 {
		t.Fatal("b came back in another session")
	}
	o := s.close()
	if !owned {
		o.harmed(unowned, "nobody owns it for %v", took)
	} else {
		o.figure("owned-after", took)
	}
	return o
}
