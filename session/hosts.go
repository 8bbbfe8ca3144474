package session

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	longPause  = time.Second
	// So many rounds go by before pauses grow.
	quickRounds = 25
	// A connection that lived for this long was a good one: the next attempt begins without a pause.
	goodConnection = time.Second
	resolveLimit   = time.Second
)

// target is one address to dial.
type target struct {
	address string // what to dial
	host    string // the configured name, for TLS
}

// hosts decides whom to connect to next. In a round every address is tried once, in random order, the one that failed
// last at the end; names are resolved anew for each round. Between rounds there is a pause, see roundPause.
// (go-zookeeper resolves once and pauses for a flat second.) All methods but newHosts are called from go-zookeeper's
// connection loop alone; it is go-zookeeper's HostProvider too, but only in name: the dialer asks for targets, because
// there it may wait.
type hosts struct {
	c         *client
	servers   []string
	resolve   func(ctx context.Context, host string) ([]string, error) // nil: pass names on
	queue     []target
	addresses int // in a round
	round     int
	last      string
	known     map[string][]string // the last good answers of the resolver
	connected time.Time           // when the newest session was made or resumed, until the next dial
	timeouts  atomic.Int32        // attempts in a row that ran into their time limit
	accepted  bool                // some server of this round accepted a connection
	warnAt    map[string]instant  // by name: when the next failure to resolve it is worth a warning
}

func newHosts(c *client, servers []string) *hosts {
	h := &hosts{c: c, servers: servers, known: make(map[string][]string), warnAt: make(map[string]instant)}
	if c.opts.Dial == nil {
		h.resolve = net.DefaultResolver.LookupHost
	}
	return h
}

// Init does nothing.
func (h *hosts) Init([]string) error { return nil }

// Len is 1: to go-zookeeper we are one server.
func (h *hosts) Len() int { return 1 }

// Next returns a name for go-zookeeper's log. The flag makes go-zookeeper drop what it has not sent yet, wait for up to
// a second and notice that it was closed: right when there is nobody to dial any more, and only then.
func (h *hosts) Next() (string, bool) { return "ensemble", h.c.refused() != nil }

// Connected notes that a session was made or resumed.
func (h *hosts) Connected() {
	h.connected = time.Now()
	h.timeouts.Store(0)
}

// next waits until it is time and returns the next target.
func (h *hosts) next(ctx context.Context) (target, error) {
	if !h.connected.IsZero() {
		h.queue = nil
		if time.Since(h.connected) >= goodConnection {
			h.round = 0
		}
		h.connected = time.Time{}
	}
	if len(h.queue) == 0 {
		if !h.accepted && h.round > 0 {
			h.c.unreachable()
		}
		h.accepted = false
		if err := pause(ctx, roundPause(h.round)); err != nil {
			return target{}, err
		}
		h.round++
		h.fill(ctx)
	}
	if len(h.queue) == 0 {
		return target{}, errNoAddress
	}
	t := h.queue[0]
	h.queue = h.queue[1:]
	h.last = t.address
	return t, nil
}

// patience is how long to wait for an answer when usually it is d: twice as long for each time that every server in turn
// was too slow. One name may stand for several of them.
func (h *hosts) patience(d time.Duration) time.Duration {
	return d << min(int(h.timeouts.Load())/max(len(h.servers), h.addresses), 8)
}

func (h *hosts) fill(ctx context.Context) {
	h.queue = nil
	h.lookUp(ctx)
	for _, server := range h.servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			continue // parseServers made it
		}
		if h.resolve == nil {
			h.queue = append(h.queue, target{address: server, host: host})
			continue
		}
		for _, address := range h.known[host] {
			h.queue = append(h.queue, target{address: net.JoinHostPort(address, port), host: host})
		}
	}
	h.addresses = len(h.queue)
	rand.Shuffle(len(h.queue), func(i, j int) { h.queue[i], h.queue[j] = h.queue[j], h.queue[i] })
	for i, t := range h.queue {
		if t.address == h.last {
			end := len(h.queue) - 1
			h.queue[i], h.queue[end] = h.queue[end], h.queue[i]
			break
		}
	}
}

// lookUp resolves the names of all servers at a time: when the resolver does not answer, a second for each of them might be all
// the trust that is left. Where it fails, the last good answer has to do.
func (h *hosts) lookUp(ctx context.Context) {
	type answer struct {
		addresses []string
		err       error
	}
	answers := make(map[string]chan answer)
	for _, server := range h.servers {
		host, _, err := net.SplitHostPort(server)
		if err != nil || answers[host] != nil || h.resolve == nil {
			continue
		}
		if net.ParseIP(host) != nil {
			h.known[host] = []string{host}
			continue
		}
		h.c.trying()
		c := make(chan answer, 1)
		answers[host] = c
		go func() {
			addresses, err := h.ask(ctx, host)
			c <- answer{addresses, err}
		}()
	}
	for host, c := range answers {
		a := <-c
		if a.err != nil {
			h.notResolved(ctx, host, a.err)
			continue
		}
		h.known[host] = a.addresses
	}
}

// ask resolves one name. Without an error there is at least one address.
func (h *hosts) ask(ctx context.Context, host string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	addresses, err := h.resolve(ctx, host)
	h.c.trying()
	if err == nil && len(addresses) == 0 {
		err = fmt.Errorf("lookup %s: no addresses", host)
	}
	return addresses, err
}

// notResolved notes why a name could not be resolved. Of each name it warns at once, and then no more often than warnEvery.
func (h *hosts) notResolved(ctx context.Context, host string, err error) {
	if ctx.Err() != nil {
		return // the client has ended
	}
	h.c.s.note(err)
	level, now := slog.LevelDebug, h.c.s.now()
	if h.warnAt[host].reached(now) {
		level = slog.LevelWarn
		h.warnAt[host] = now.add(warnEvery)
	}
	h.c.log.Log(ctx, level, "name not resolved", keyHost, host, keyError, err)
}

// roundPause is how long to wait before the next round after so many rounds in vain: 50 ms for about a second, then more
// from round to round, up to 1 s after about 8 s. While the servers elect a leader they turn everybody away, and who waits
// for longer than that takes has lost the rest of the pause; an election takes half a second, and more when servers are busy.
func roundPause(rounds int) time.Duration {
	if rounds == 0 {
		return 0
	}
	d := firstPause
	for i := quickRounds; i < rounds && d < longPause; i++ {
		d += d / 10
	}
	return jittered(d)
}

// backoff is how long to wait after so many failures in a row: from 50 ms to 1 s.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	d := firstPause
	for i := 1; i < failures && d < longPause; i++ {
		d += d / 4
	}
	return jittered(d)
}

func jittered(d time.Duration) time.Duration {
	d = min(d, longPause)
	return d/2 + rand.N(d/2)
}

// pause waits, or returns ctx's cause.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
