package attacks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
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

// The executions that need an ensemble, on real servers: §1 and §4 of the table in doc.go, and the cut follower.
func TestOnARealEnsemble(t *testing.T) {
	e := proxy.StartEnsemble(t, servers.ZooKeeperOptions{
		Servers: 3, TickTime: quickTick, Config: map[string]string{"syncLimit": fmt.Sprint(quickLimit)},
	})
	t.Run("deposed leader answers Sync", func(t *testing.T) {
		cutServer(t, e, e.LeaderIndex(), func() { e.CutLeaderOneSide() })
	})
	t.Run("cut follower answers reads", func(t *testing.T) {
		follower := e.FollowerIndex()
		cutServer(t, e, follower, func() { e.CutFollower(follower) })
	})
	t.Run("proof through a follower", func(t *testing.T) {
		var o *outcome
		var exact bool
		const tries = 2 // the follower may report just in time, or the proof be late; TestProofThroughAFollower is always exact
		for try := 0; try < tries && !exact; try++ {
			o, exact = stopProcess(t, e, fmt.Sprint(try))
		}
		t.Attr("exact", fmt.Sprint(exact))
		withstood(t, o)
	})
	t.Run("stock dialer", func(t *testing.T) { freezeLeader(t, e) })
}

// cutServer has members on a server that is cut off from the others, and members elsewhere to inherit what they own.
func cutServer(t *testing.T, e *proxy.Ensemble, index int, cut func()) {
	const serves = (quickLimit + 1) * quickTick // the server, on its own
	here, others := e.Addrs()[index:index+1], slices.Delete(slices.Clone(e.Addrs()), index, index+1)
	s := newSite(t, groupOf(t), others)
	opts := options{session: session.Options{Timeout: realTimeout}}
	onHere := opts
	onHere.servers = here
	a := s.member("a", onHere)
	a.owns(expiry, "0")
	b := s.member("b", opts)
	s.within(expiry, "b has joined", func() bool { return b.journal.count(eventlog.Joined) == 1 })
	wait.Pass(t, 2*realTimeout/3) // for some proofs of life
	cut()
	b.owns(2*expiry, "0")
	s.within(serves+realTimeout+expiry, "a has stopped", func() bool { return a.journal.count(eventlog.Untrusted) > 0 })
	e.Heal()
	withstood(t, s.close())
	for _, n := range e.Nodes() {
		n.WaitReady()
	}
}

// stopProcess stops a member's process (SIGSTOP) for a little less than the time after which it would first look for another
// server. It wakes, and when its next proof of life is answered it and its follower are cut off from the rest. It reports whether
// all that came about: the proof counted, and the leader did not hear of it.
func stopProcess(t *testing.T, e *proxy.Ensemble, name string) (o *outcome, exact bool) {
	const (
		timeout = 6 * time.Second
		still   = 2850 * time.Millisecond
		answer  = 12 * time.Millisecond // within that a request is answered, mostly
	)
	follower := e.FollowerIndex()
	s := newSite(t, "still-"+name, slices.Delete(slices.Clone(e.Addrs()), follower, follower+1))
	way := proxy.To(t, e.Addrs()[follower:follower+1])
	proofs := s.proofs(way)
	a := &child{Group: s.name, Name: "a", Servers: way.Addrs(), Timeout: timeout}
	startChild(t, a)
	s.within(expiry, "a owns", func() bool { return a.told(t, eventlog.Claimed) == 1 })
	b := s.member("b", options{session: session.Options{Timeout: timeout}})
	s.within(expiry, "b has joined", func() bool { return b.journal.count(eventlog.Joined) == 1 })
	<-proofs // of any age
	<-proofs
	proved := <-proofs
	wait.Pass(t, 2*answer)
	a.process.Pause()
	wait.Pass(t, still-time.Duration(s.now()-proved))
	a.process.Resume()
	woke := <-proofs
	wait.Pass(t, answer-time.Duration(s.now()-woke))
	way.BlackHole(proxy.Both)
	e.CutFollower(follower)
	b.owns(timeout+expiry, "0")
	s.within(timeout+expiry, "a has stopped", func() bool { return a.told(t, eventlog.Untrusted) > 0 })
	a.process.Kill()
	e.Heal()
	for _, n := range e.Nodes() {
		n.WaitReady()
	}
	s.others = append(s.others, a.log(t))
	o = s.close()
	after := func(at int64) time.Duration { return time.Duration(at - proved) }
	for _, tm := range terms(append(s.others, eventlog.Log{Name: "b", Events: b.journal.events()})) {
		if tm.member == "a" {
			exact = after(tm.end) > timeout*2/3+timeout/12
			o.figure("trust-ended", after(tm.end))
		} else {
			exact = exact && after(tm.start) < timeout+2*quickTick
			o.figure("heir", after(tm.start))
		}
	}
	o.figure("still", after(woke))
	t.Log(o.figures, exact)
	return o, exact
}

// freezeLeader stops the leader's process while a member is connected to a follower; it is the next server that the member asks.
// Since handshakes are bounded it comes back to the follower in time, and does not wait for the frozen server.
func freezeLeader(t *testing.T, e *proxy.Ensemble) {
	leader, follower := e.LeaderIndex(), e.FollowerIndex()
	third := slices.Delete(slices.Clone(e.Addrs()), leader, leader+1)
	third = slices.DeleteFunc(third, func(addr string) bool { return addr == e.Addrs()[follower] })
	s := newSite(t, groupOf(t), third)
	opts := options{session: session.Options{Timeout: realTimeout}}
	here := opts
	here.servers = []string{e.Addrs()[follower], e.Addrs()[leader]}
	here = s.on("a", here)
	s.links["a"][1].Refuse() // until it is connected to the follower
	a := s.join("a", here)
	a.owns(expiry, "0")
	id, connections := a.sessionID(), a.session.Stats().Reconnects
	s.links["a"][1].Heal()
	b := s.member("b", opts)
	s.within(expiry, "b has joined", func() bool { return b.journal.count(eventlog.Joined) == 1 })
	e.Nodes()[leader].Pause()
	took, _ := poll(quickLimit*quickTick+2*expiry, func() bool { // until others are elected, and one session is not heard of
		return b.owned() == "0" || a.session.Stats().Reconnects > connections
	})
	inherited := b.owned() == "0"
	if !inherited {
		a.owns(expiry, "0")
	}
	survived := a.sessionID() == id
	e.Nodes()[leader].Resume()
	o := s.close()
	switch {
	case inherited:
		o.harmed(sessionLost, "it expired, and another owned its partition after %v", took)
	case !survived:
		o.harmed(sessionLost, "it owns again, in another session")
	}
	withstood(t, o)
	for _, n := range e.Nodes() {
		n.WaitReady()
	}
}
