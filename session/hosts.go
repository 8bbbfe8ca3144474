package session

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/pause"
)

const (
	firstPause = 50 * time.Millisecond
	longPause  = time.Second
	// quickRounds is how many rounds go by before the pauses between them grow.
	quickRounds = 25
	// goodConnection is how long a connection must live for the next attempt to begin without a pause.
	goodConnection = time.Second
	resolveLimit   = time.Second
)

// target is one address to dial.
type target struct {
	address string // what to dial
	host    string // the configured name, for TLS
}

// hosts decides which server to connect to next. In a round every address is tried once, in random order, the one that was tried
// last at the end. Names are resolved anew for each round, and between rounds there is a pause (roundPause). (go-zookeeper
// resolves once, and pauses for a flat second.)
//
// hosts is go-zookeeper's HostProvider, but in name only: the dialer asks for targets, because the dialer may wait. Only
// go-zookeeper's connection loop calls its methods.
type hosts struct {
	c         *client
	servers   []string                                                 // Session.servers
	resolve   func(ctx context.Context, host string) ([]string, error) // nil: names are dialled unresolved
	queue     []target                                                 // what is left of this round
	addresses int                                                      // how many targets a round has
	round     int                                                      // rounds since the last good connection
	last      string                                                   // the address tried last
	known     map[string][]string                                      // the resolver's last good answer for each name
	connected time.Time                                                // when a connection last made or resumed the session; zero after the next dial
	timeouts  atomic.Int32                                             // how many attempts in a row ran into their time limit
	accepted  bool                                                     // some server of this round accepted a connection
	warnAt    map[string]instant                                       // by name: from when on a failure to resolve it is logged as a warning again
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

// Len returns 1: go-zookeeper sees one server.
func (h *hosts) Len() int { return 1 }

// Next returns a name for go-zookeeper's log. A true flag makes go-zookeeper drop the requests that it has not sent yet, wait for
// up to a second, and notice that it was closed. That is right only when no connection may be made any more.
func (h *hosts) Next() (string, bool) { return "ensemble", h.c.mayConnect() != nil }

// Connected records that a connection has made or resumed the session.
func (h *hosts) Connected() {
	h.connected = time.Now()
	h.timeouts.Store(0)
}

// next returns the next target, after the pause if a new round begins.
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
		if err := pause.Sleep(ctx, roundPause(h.round)); err != nil {
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

// patience returns how long to wait for an answer that usually comes within d: twice as long for each time that every server in
// turn was too slow. (One name may stand for several servers.)
func (h *hosts) patience(d time.Duration) time.Duration {
	return d << min(int(h.timeouts.Load())/max(len(h.servers), h.addresses), 8)
}

// fill makes the queue of a new round.
func (h *hosts) fill(ctx context.Context) {
	h.queue = nil
	h.lookUp(ctx)
	for _, server := range h.servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			continue // cannot happen: parseServers made the address
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

// lookUp resolves the names of all servers at the same time: when the resolver does not answer, a second for each name in turn
// might be all the trust that is left. A name that can't be resolved keeps its last good answer.
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

// ask resolves one name, to at least one address.
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

// notResolved records and logs why a name could not be resolved. For each name it warns at once, and then once per warnEvery at
// most.
func (h *hosts) notResolved(ctx context.Context, host string, err error) {
	if ctx.Err() != nil {
		return // the client has ended
	}
	h.c.s.recordError(err)
	level, now := slog.LevelDebug, h.c.s.now()
	if h.warnAt[host].reached(now) {
		level = slog.LevelWarn
		h.warnAt[host] = now.add(warnEvery)
	}
	h.c.log.Log(ctx, level, "name not resolved", keyHost, host, keyError, err)
}

// roundPause returns how long to wait before the next round, after that many rounds without success: 50 ms for about a second,
// then more from round to round, up to 1 s after about 8 s. While the servers elect a leader they refuse all connections. An
// election takes half a second, or more when the servers are busy; the part of a pause after its end is lost time.
func roundPause(rounds int) time.Duration {
	if rounds == 0 {
		return 0
	}
	return pause.Jitter(pause.Growth{First: firstPause, Most: longPause, Percent: 10}.After(rounds - quickRounds))
}

// backoff returns how long to wait after that many failures in a row: from 50 ms to 1 s.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	return pause.Jitter(pause.Growth{First: firstPause, Most: longPause, Percent: 25}.After(failures - 1))
}
