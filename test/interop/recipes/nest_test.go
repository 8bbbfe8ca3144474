package recipes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
)

// sessionTimeout is that of contenders of schedules, in both languages.
const sessionTimeout = 3 * time.Second

// silence is for how long a contender may say nothing before it counts as stuck.
const silence = 90 * time.Second

// arena is a server on which many contenders, of both languages, meet at different paths.
type arena struct {
	*rig
	began  time.Time
	ahead  time.Duration // Python's clock is ahead of ours by so much
	unsure time.Duration // give or take this

	in   *json.Encoder
	mu   sync.Mutex // of in and lives
	next int
	live map[int]chan event
}

// event is what a Python contender says; see contenders.py.
type event struct {
	ID     int           `json:"id"`
	Say    string        `json:"say"`
	Op     int           `json:"op"`
	What   string        `json:"what"`
	Text   string        `json:"text"`
	Shared bool          `json:"shared"`
	Items  []string      `json:"items"`
	Began  time.Duration `json:"began"`
	Until  time.Duration `json:"until"`
	At     time.Duration `json:"at"`
}

func newArena(t *testing.T) *arena {
	t.Helper()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		TickTime: 250 * time.Millisecond, MinSessionTimeout: time.Second, MaxSessionTimeout: 20 * time.Second, Heap: "128m",
		Config: map[string]string{"maxClientCnxns": "0"},
	})
	a := &arena{rig: &rig{T: t, zk: zk.Addr()}, began: time.Now(), live: make(map[int]chan event)}
	a.s = a.session()
	cmd := exec.Command(servers.Python(t), "contenders.py", a.zk)
	routed := make(chan struct{})
	t.Cleanup(func() { <-routed }) // when the process has ended and its output is closed
	p := servers.Talk(t, "contenders", cmd)
	a.in = p.In
	clock := a.life()
	go func() {
		defer close(routed)
		a.route(p.Out)
	}()
	a.tune(clock)
	return a
}

// route hands what contenders say to those who listen.
func (a *arena) route(out *json.Decoder) {
	for {
		var e event
		err := out.Decode(&e)
		a.mu.Lock()
		if err != nil {
			for _, life := range a.live {
				close(life)
			}
			a.live = nil
			a.mu.Unlock()
			return
		}
		life := a.live[e.ID]
		a.mu.Unlock()
		if life != nil {
			life <- e
		}
	}
}

// tune finds out what Python's clock shows. It is ours, CLOCK_MONOTONIC, but Go does not tell what that shows, only how much it
// has advanced.
func (a *arena) tune(clock *life) {
	a.Helper()
	a.unsure = time.Hour
	for range 50 {
		before := a.now()
		a.must(clock.send(map[string]any{"id": clock.id}))
		e, err := clock.hear(a.Context(), silence)
		a.must(err)
		if wide := (a.now() - before + 1) / 2; wide < a.unsure {
			a.unsure, a.ahead = wide, e.At-before-wide
		}
	}
	clock.forget()
	a.Attr("clocks-differ-by-at-most", a.unsure.String())
}

// now is the time since the arena was made.
func (a *arena) now() time.Duration { return time.Since(a.began) }

// life is one Python process.
type life struct {
	a      *arena
	id     int
	events chan event
	sick   atomic.Bool // its session was, or may have been, lost: it may fail, and what it says is not certain
}

// life returns one that is yet to begin. The first is no contender's.
func (a *arena) life() *life {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &life{a: a, id: a.next, events: make(chan event, 1<<12)}
	a.live[l.id] = l.events
	a.next++
	return l
}

var errSilent = errors.New("a Python contender says nothing")

func (l *life) send(request map[string]any) error {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	return l.a.in.Encode(request)
}

// hear returns what the contender says next.
func (l *life) hear(ctx context.Context, limit time.Duration) (event, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case e, ok := <-l.events:
		if !ok {
			return event{}, errors.New("the Python process is gone")
		}
		return e, nil
	case <-timer.C:
		return event{}, errSilent
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	}
}

// signal sends a signal and returns what was said until it had been sent.
func (l *life) signal(name string) ([]event, error) {
	if err := l.send(map[string]any{"id": l.id, "signal": name}); err != nil {
		return nil, err
	}
	var said []event
	for {
		e, err := l.hear(context.WithoutCancel(l.a.Context()), silence)
		if err != nil || e.Say == name {
			return said, err
		}
		said = append(said, e)
	}
}

// forget says that nobody listens any more.
func (l *life) forget() {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	delete(l.a.live, l.id)
}

// linked is a session behind links of its own, to be cut.
type linked struct {
	*session.Session
	links  proxy.Links
	faults sync.WaitGroup
	end    func() error
}

func (a *arena) linked(timeout time.Duration) (*linked, error) {
	links := proxy.To(a, []string{a.zk})
	s, err := session.New(links.Addrs(), session.Options{Timeout: timeout, MinSessionTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	l := &linked{Session: s, links: links}
	l.end = func() error {
		l.faults.Wait()
		links.Heal()
		cancel()
		if err := <-done; err != nil {
			return fmt.Errorf("session: %w", err)
		}
		return nil
	}
	return l, nil
}
