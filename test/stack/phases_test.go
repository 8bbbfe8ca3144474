package stack_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// phases counts what was under way when somebody was stopped.
type phases map[string]int

// session notes what a session is in the middle of, and what is wrong.
func (p phases) session(zk *session.Session, h *handshakes, fault string) {
	p["session "+zk.Stats().State]++
	p["fault: "+fault]++
	if dialling, open := h.under(); open > 0 {
		p["handshake"]++
	} else if dialling > 0 {
		p["dialling"]++
	}
}

// handshakes is a dialer that counts the dials, and the connections whose first request has no answer yet.
type handshakes struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu             sync.Mutex
	dialling, open int
}

func (h *handshakes) add(dialling, open int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialling += dialling
	h.open += open
}

func (h *handshakes) under() (dialling, open int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dialling, h.open
}

// Dial dials.
func (h *handshakes) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	h.add(1, 0)
	defer h.add(-1, 0)
	conn, err := h.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &greeting{Conn: conn, h: h}, nil
}

// greeting is a connection that tells when its first request is sent, and when that is over.
type greeting struct {
	net.Conn
	h        *handshakes
	asked    sync.Once
	answered sync.Once
	sent     atomic.Bool
}

func (g *greeting) over() {
	if g.sent.Load() {
		g.answered.Do(func() { g.h.add(0, -1) })
	}
}

// Write sends.
func (g *greeting) Write(b []byte) (int, error) {
	g.asked.Do(func() { g.h.add(0, 1); g.sent.Store(true) })
	return g.Conn.Write(b)
}

// Read receives.
func (g *greeting) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.over()
	return n, err
}

// Close closes.
func (g *greeting) Close() error {
	g.over()
	return g.Conn.Close()
}

// look notes the phases that a member is in.
func (p phases) look(m *member, calling bool, fault string) {
	p.session(m.zk, m.dialer, fault)
	s := m.alloc.Snapshot()
	switch {
	case s == nil:
		p["joining"]++
	case !s.Joined:
		p["not joined"]++
	default:
		owned := m.owner.Owned()
		switch {
		case slices.ContainsFunc(owned, func(i ownership.OwnedClaim) bool { return i.Revoking }):
			p["handing over"]++
		case len(owned) < len(s.Mine()):
			p["claiming"]++
		default:
			p["settled"]++
		}
	}
	if m.metric("kiel_rebalance_in_progress", "") > 0 {
		p["rebalancing"]++
	}
	if calling {
		p["inside a callback"]++
	}
}

// report prints the phases; those named must have been hit, and all faults.
func (p phases) report(t *testing.T, must ...string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(p)) {
		t.Logf("%4d of %d stopped while: %s", p[name], schedules, name)
	}
	if *replayed != 0 {
		return
	}
	for fault := range faults() {
		must = append(must, "fault: "+fault)
	}
	for _, name := range must {
		if p[name] == 0 {
			t.Errorf("nothing was stopped while: %s", name)
		}
	}
	t.Attr("phases_hit", strconv.Itoa(len(p)))
}
