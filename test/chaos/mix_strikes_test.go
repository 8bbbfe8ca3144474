package chaos_test

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// strike is a fault of a member's way to ZooKeeper that was prepared: it counts when it has hit something, and never if it has
// not: a reply that nobody waited for, a connection that was not there.
type strike struct {
	kind string
	of   *member
	hit  func() bool
}

// mustHit are the kinds of strikes, of which each has to hit something in a run that is long enough.
var mustHit = []struct {
	kind string
	do   func(x *mix) (what string, end func() bool, ok bool)
}{
	{"black hole", (*mix).blackHole},
	{"cut", (*mix).cut},
	{"lost reply", (*mix).loseReply},
	{"refusal", (*mix).refuse},
	{"silence", (*mix).silence},
	{"slowness", (*mix).slow},
}

// look counts the strikes that have hit something.
func (x *mix) look() {
	x.strikes = slices.DeleteFunc(x.strikes, func(s strike) bool {
		if !s.hit() {
			return false
		}
		x.struck(s.kind)
		x.hits[s.kind]++
		return true
	})
}

// heal ends what is wrong with a member's links, but not the wait for a reply to lose.
func (x *mix) heal(m *member) {
	links := x.thieves[m].links
	links.Heal()
	for i, s := range x.strikes {
		if s.of == m && s.kind == "lost reply" && !s.hit() {
			x.strikes[i].hit = losesReply(m, links)
		}
	}
}

// insist strikes once more where all strikes have missed, while everything works: these must hit.
func (x *mix) insist() {
	x.t.Helper()
	x.insists = true
	before := len(x.incidents)
	for _, must := range mustHit {
		if x.hits[must.kind] > 0 {
			continue
		}
		what, end, ok := must.do(x)
		if !ok {
			x.t.Fatalf("%s is not possible though everything works", must.kind)
		}
		x.say("%s, since none has hit anything so far", what)
		if _, name, _ := strings.Cut(what, " of "); must.kind == "lost reply" {
			if _, _, ok := x.delete(nil, "members", name); !ok { // which it creates again
				x.t.Errorf("the znode of %s can't be deleted though everything works", name)
			}
		}
		wait.Until(x.t, settleLimit, func() bool { x.look(); return x.hits[must.kind] > 0 },
			func() string { return what + " hits something" })
		if end != nil {
			end()
		}
	}
	if len(x.incidents) > before {
		x.unnoticed("each was over as soon as it had hit something")
		x.quiet()
	}
}

// forget gives up the strikes that have hit nothing, which nothing may do any more.
func (x *mix) forget() {
	for _, s := range x.strikes {
		x.missed[s.kind]++
	}
	x.strikes = nil
}

// held says whether a member has sent a request by links that hold it or its answer up, from now on until they are healed.
func held(links proxy.Links) (hit func() bool) {
	var asked atomic.Bool
	links.LoseReply(func(proxy.Request) bool { asked.Store(true); return false }) // it loses none
	return asked.Load
}

// dropped says whether a member said between two times that it lost a connection by its links, which these broke at the first.
func (m *member) dropped(links proxy.Links, from, to int64) (hit func() bool) {
	return func() bool {
		return slices.ContainsFunc(m.said(from, to, "connection lost"), func(line string) bool {
			return slices.ContainsFunc(links.Addrs(), func(addr string) bool { return strings.Contains(line, "server="+addr+" ") })
		})
	}
}

// losesReply has the reply to the next creation or claim lost, and says whether it was, see [proxy.Links.LoseReply].
func losesReply(_ *member, links proxy.Links) (hit func() bool) {
	done := links.LoseReply(func(r proxy.Request) bool {
		return r.Op == proxy.OpMulti && r.First != proxy.OpCheck || r.Op == proxy.OpCreate
	})
	return func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}
