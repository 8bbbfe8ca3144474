package attacks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

const (
	quickTick = 300 * time.Millisecond
	// A follower notices after so many ticks that its leader is gone, a leader after one more that it was deposed.
	quickLimit = 18
)

// The executions that need an ensemble, on real servers: attacks.md §1 and §4, and the cut follower. In the first two the
// members that have all rules and those that do not meet the same fault at the same time.
func TestOnARealEnsemble(t *testing.T) {
	e := proxy.StartEnsemble(t, servers.ZooKeeperOptions{
		Servers: 3, TickTime: quickTick, Config: map[string]string{"syncLimit": fmt.Sprint(quickLimit)},
	})
	t.Run("deposed leader answers Sync", func(t *testing.T) {
		cutServer(t, e, e.LeaderIndex(), func() { e.CutLeaderOneSide() }, sabotage.ProofBeyondSync)
	})
	t.Run("cut follower answers reads", func(t *testing.T) {
		follower := e.FollowerIndex()
		// A follower answers the requests of a session in order, so the Sync of the next sweep would soon hold up the reads
		// that are to prove the session alive: a second rule, by chance. Without sweeps there is only the first.
		cutServer(t, e, follower, func() { e.CutFollower(follower) }, sabotage.ProofByQuorum, sabotage.PossiblyMine)
	})
}

// cutServer has members on a server that is cut off from the others, and members elsewhere to inherit what they own.
func cutServer(t *testing.T, e *proxy.Ensemble, index int, cut func(), rules ...sabotage.Rule) {
	const serves = (quickLimit + 1) * quickTick // the server, on its own
	here, others := e.Addrs()[index:index+1], slices.Delete(slices.Clone(e.Addrs()), index, index+1)
	modes := map[string][]sabotage.Rule{"on": nil, "off": rules}
	sites := map[string]*site{}
	for mode, off := range modes {
		s := newSite(t, groupOf(t)+"-"+mode, others)
		sites[mode] = s
		opts := options{off: off, session: session.Options{Timeout: realTimeout}}
		onHere := opts
		onHere.servers = here
		s.member("a", onHere).owns(expiry, "0")
		b := s.member("b", opts)
		s.within(expiry, "b has joined", func() bool { return b.journal.count(eventlog.Joined) == 1 })
	}
	wait.Pass(t, 2*realTimeout/3) // for some proofs of life
	cut()
	for _, s := range sites {
		s.members[1].owns(2*expiry, "0")
	}
	for _, s := range sites {
		s.within(serves+realTimeout+expiry, "a has stopped", func() bool { return s.members[0].journal.count(eventlog.Untrusted) > 0 })
	}
	e.Heal()
	for mode, s := range sites {
		o := s.close()
		t.Run(mode, func(t *testing.T) {
			if mode == "on" {
				withstood(t, o)
			} else {
				broken(t, overlap, o)
			}
		})
	}
	for _, n := range e.Nodes() {
		n.WaitReady()
	}
}
