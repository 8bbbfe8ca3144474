package chaos_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// wrongClock is a member's clock that jumps, and of which the monotonic half can stand still, as that of a machine does which
// is suspended.
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

// Scenario 16: a member's clock jumps, or its machine is suspended: trust may end too early, and never too late. Nobody but
// root can do that to a process, so members live in this one, on real servers.
func TestClocks(t *testing.T) {
	t.Parallel()
	const (
		partitions = 12
		timeout    = 6 * time.Second
	)
	c := &crew{t: t, group: nameOfTest.Replace(t.Name()), addrs: sharedZooKeeper(t).Addrs(), timeout: timeout}
	clock := &wrongClock{begun: time.Now()}
	a, b := c.hire("a", partitions), c.hire("b", partitions)
	a.clock = clock.now
	a.work(t)
	b.work(t)
	c.owned(partitions, a, b)
	held, session := a.tokens(), a.ses.Stats().SessionID

	injected.add("clock jump")
	at := members.Monotonic()
	clock.jump(-time.Hour)
	wait.Pass(t, 3*timeout/2) // in which nothing is to happen
	a.did(t, at)
	b.did(t, at)

	injected.add("clock jump")
	at = members.Monotonic()
	clock.jump(time.Hour)
	wait.Pass(t, timeout/2)
	t.Attr("an-hour-ahead", fmt.Sprintf("trust lost %d times, all is owned after %v",
		a.count(eventlog.Untrusted), ms(timeout/2+c.owned(partitions, a, b))))
	a.did(t, at, eventlog.Untrusted, eventlog.Snapshot, eventlog.Claimed)
	b.did(t, at)
	if now := a.ses.Stats().SessionID; now != session || !maps.Equal(held, a.tokens()) {
		t.Errorf("held %v in session %x, now %v in %x", held, session, a.tokens(), now)
	}

	// lonely cuts a member off until the other has all: it must have stopped before.
	lonely := func(name string, wrong, right func()) {
		t.Helper()
		gone := watchGone(t, c.addrs, memberPath(c.group, a.name))
		injected.add("black hole")
		at := members.Monotonic()
		a.links.BlackHole(proxy.Both)
		wrong()
		c.owned(partitions, b)
		away := gone()
		stopped := a.first(at, eventlog.Untrusted)
		if stopped == 0 {
			t.Fatalf("%s: it has not stopped, and its ephemeral has gone", name)
		}
		if stopped >= away {
			t.Errorf("%s: stopped %v after its ephemeral was gone", name, time.Duration(stopped-away))
		}
		t.Attr(name, fmt.Sprintf("%v: stopped after %v, ephemeral gone after %v",
			ms(time.Duration(away-stopped)), ms(time.Duration(stopped-at)), ms(time.Duration(away-at))))
		right()
		a.links.Heal()
		c.owned(partitions, a, b)
	}
	injected.add("clock jump")
	lonely("margin-an-hour-back", func() { clock.jump(-time.Hour) }, func() { clock.jump(time.Hour) })
	injected.add("suspension")
	lonely("margin-suspended", clock.suspend, clock.resume)
	for _, h := range c.hands {
		if err := h.leave(); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
	}
	c.verdict()
}

// tokens returns what a member owns under which token.
func (h *hand) tokens() map[int32]int64 {
	held := map[int32]int64{}
	for _, info := range h.owner.Owned() {
		held[info.Partition] = info.Token
	}
	return held
}

// first returns when the first event of a kind was after a time, or 0.
func (h *hand) first(since int64, kind string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.T > since && e.Event == kind {
			return e.T
		}
	}
	return 0
}

// did says that there were events of no other kinds after a time.
func (h *hand) did(t *testing.T, since int64, kinds ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	allowed := map[string]bool{}
	for _, kind := range kinds {
		allowed[kind] = true
	}
	for _, e := range h.events {
		if e.T > since && !allowed[e.Event] {
			t.Errorf("%s: %s", h.name, e.Event)
		}
	}
}
