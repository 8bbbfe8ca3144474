package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// wrongClock is a member's clock that jumps, and of which the monotonic half can stand still, as that of a machine does which is
// suspended.
type wrongClock struct {
	mu      sync.Mutex
	begun   time.Time
	still   time.Time     // since which the monotonic half stands still, or zero
	stood   time.Duration // for how long it did so before that
	forward time.Duration // of the wall clock
}

// now is a clocks.Clock.
func (c *wrongClock) now() (mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	wall = time.Duration(now.UnixNano()) + c.forward
	if !c.still.IsZero() {
		now = c.still
	}
	return now.Sub(c.begun) - c.stood, wall
}

func (c *wrongClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forward += d
}

func (c *wrongClock) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.still = time.Now()
}

func (c *wrongClock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stood += time.Since(c.still)
	c.still = time.Time{}
}

// Scenario 16: a member's clock jumps, or its machine is suspended: trust may end too early, and never too late. Nobody but root
// can do that to a process, so members live in this one, on real servers.
func TestClocks(t *testing.T) {
	t.Parallel()
	const timeout = 6 * time.Second
	zookeeper := sharedZooKeeper(t).Addrs()
	f := newFleet(t, 16, options{timeout: timeout})
	clock, links := &wrongClock{begun: time.Now()}, proxy.To(t, zookeeper)
	a, b := f.hire("a", clocked(clock.now), via(join(links.Addrs()...))), f.hire("b")
	f.settle()
	before, session := f.tokens(), a.hand.ses.Stats().SessionID

	at := members.Monotonic()
	f.begin("an hour back", at)
	f.fault("clock jump")
	clock.jump(-time.Hour)
	f.unnoticed("the monotonic clock tells how much time has passed")
	wait.Pass(t, 3*timeout/2) // in which nothing is to happen
	f.settle()
	a.did(at)
	b.did(at)

	at = members.Monotonic()
	f.begin("an hour ahead", at)
	f.fault("clock jump")
	clock.jump(time.Hour)
	wait.Pass(t, timeout/2)
	f.settle()
	a.did(at, eventlog.Untrusted, eventlog.Snapshot, eventlog.Claimed)
	b.did(at)
	if now := a.hand.ses.Stats().SessionID; now != session || !maps.EqualFunc(before, f.tokens(), maps.Equal) {
		t.Errorf("held %v in session %x, now %v in %x", before, session, f.tokens(), now)
	}

	// lonely cuts a member off until the other has all: it must have stopped before.
	lonely := func(name, kind string, wrong, right func()) {
		t.Helper()
		gone := watchGone(t, zookeeper, memberPath(f.topic, a.Name))
		f.begin(name, members.Monotonic())
		f.fault(kind)
		f.fault("black hole")
		at := members.Monotonic()
		links.BlackHole(proxy.Both)
		wrong()
		a.paused = true
		f.settle()
		away := gone()
		f.read()
		e, ok := a.after(at, eventlog.Untrusted)
		if !ok {
			t.Fatalf("%s: it has not stopped, and its ephemeral has gone", name)
		}
		if e.T >= away {
			t.Errorf("%s: stopped %v after its ephemeral was gone", name, time.Duration(e.T-away))
		}
		f.attr("margin "+name, fmt.Sprintf("%v: stopped after %v, ephemeral gone after %v",
			ms(time.Duration(away-e.T)), ms(time.Duration(e.T-at)), ms(time.Duration(away-at))))
		f.measure(name+" and healed", func() {
			right()
			links.Heal()
			a.paused = false
		})
	}
	lonely("cut off and an hour back", "clock jump", func() { clock.jump(-time.Hour) }, func() { clock.jump(time.Hour) })
	lonely("cut off and suspended", "suspension", clock.suspend, clock.resume)
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}

// did says that after a time a member has seen and done messages, and events of some kinds, and no others.
func (m *member) did(since int64, kinds ...string) {
	m.f.t.Helper()
	kinds = append(kinds, eventlog.Opened, eventlog.Message, eventlog.Done, eventlog.Committed)
	for _, e := range m.events {
		if e.T > since && !slices.Contains(kinds, e.Event) {
			m.f.t.Errorf("%s: %s", m.Name, e.Event)
		}
	}
}
