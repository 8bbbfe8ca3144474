package chaos_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// behindLinks starts a group of three of which the first reaches ZooKeeper by links of its own.
func (f *fleet) behindLinks() (*member, proxy.Links) {
	f.t.Helper()
	links := proxy.To(f.t, sharedZooKeeper(f.t).Addrs())
	victim := f.start("victim", via(join(links.Addrs()...)))
	f.start("m1")
	f.start("m2")
	f.settle()
	return victim, links
}

// sessionOf returns what it takes to be the client of a member's session, which some link has seen.
func sessionOf(links proxy.Links, m *member) proxy.Session {
	for _, l := range links {
		for _, e := range slices.Backward(m.events) {
			if e.Session == "" {
				continue
			}
			if s := l.Session(); e.Session == fmt.Sprintf("0x%x", uint64(s.ID)) {
				return s
			}
			break
		}
	}
	return proxy.Session{}
}

// Scenario 1: somebody who knows a member's session ends it.
func TestSessionClosed(t *testing.T) {
	t.Parallel()
	const rounds = 3
	f := newFleet(t, 1, options{})
	victim, links := f.behindLinks()
	var took []time.Duration
	for round := range rounds {
		session := sessionOf(links, victim)
		if session.ID == 0 {
			t.Fatalf("no link has seen the session of %s", victim.Name)
		}
		at := members.Monotonic()
		r := f.measure(fmt.Sprintf("closed-%d", round), func() {
			if err := f.rob(victim, session, sharedZooKeeper(t).Addr()); err != nil {
				t.Fatal(err)
			}
			f.until("the member has stopped", func() bool {
				_, ok := victim.after(at, eventlog.Untrusted, eventlog.Lost)
				return ok
			})
		})
		stopped, _ := victim.after(at, eventlog.Untrusted, eventlog.Lost)
		t.Attr(fmt.Sprintf("stopped-%d", round), ms(time.Duration(stopped.T-at)).String())
		if d := time.Duration(cmp.Or(stopped.Since, stopped.T) - at); d > timeout*2/3 { // its log may be late
			t.Errorf("the member stopped %v after its session was closed", d)
		}
		took = append(took, r.owned)
		wait.Pass(t, aftermath) // a change soon after another waits for more of them
	}
	best(t, "owned-after", closedBound, took)
	if n := victim.sessions(); n != rounds+1 {
		t.Errorf("%d sessions, want %d", n, rounds+1)
	}
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted, eventlog.Lost)
}

// Scenario 2: a member hears nothing and is not heard, for a while.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, options{})
	victim, links := f.behindLinks()
	var silent int64 // since when nothing has come through
	hole := func(d time.Duration) (at int64) {
		f.fault("black hole")
		at = members.Monotonic()
		links.BlackHole(proxy.Both)
		silent = members.Monotonic()
		wait.Pass(t, d)
		return at
	}

	before := f.tokens()
	// For half a session timeout: the session lives on, nobody else notices.
	f.keepsTrust("half-T", links, func() int64 {
		at := hole(timeout / 2)
		links.Heal()
		wait.Pass(t, timeout/2) // whatever comes of it has come
		f.settle()
		f.unmoved("half of T", before, at)
		return at
	})

	// For nine tenths: the session may just live on, but who has it can't know.
	at := hole(timeout * 9 / 10)
	links.Heal()
	f.until("the member has stopped", func() bool { _, ok := victim.stoppedAt(at); return ok })
	if since, _ := victim.stoppedAt(at); since-silent > int64(timeout*2/3) {
		t.Errorf("nine tenths of T: the member stopped after %v, want %v at most", time.Duration(since-silent), timeout*2/3)
	}
	wait.Pass(t, timeout/2)
	f.settle()
	t.Attr("sessions-after-nine-tenths-of-T", fmt.Sprint(victim.sessions()))

	// For two of them: the others take over, after it has stopped.
	gone := watchGone(t, sharedZooKeeper(t).Addrs(), memberPath(f.topic, victim.Name))
	sessions := victim.sessions()
	f.measure("two-T-taken-over", func() {
		at = hole(2 * timeout)
		victim.paused = true
		f.stopsBefore(victim, at, gone())
	})
	f.measure("two-T-healed", func() { links.Heal(); victim.paused = false })
	if n := victim.sessions(); n != sessions+1 {
		t.Errorf("%d sessions, want %d", n, sessions+1)
	}
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}
