package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/IBM/sarama"
)

// link is one connection to a broker, and the goroutine that fetches on it.
type link struct {
	node   *node
	woken  chan struct{} // holds a token when partitions may be ready
	config *sarama.Config
	broker *sarama.Broker // nil when not connected; only the link's goroutine uses it
	traffic

	// The fields below are guarded by the fetcher's mu.

	request *request      // the request in flight; nil for none
	poll    time.Duration // how long the last short poll waited
	conn    *conn         // nil for none
	early   bool          // a connection is to be opened though there is nothing to fetch yet
	tap     *tap          // on top of conn; nil for none
	stopped bool
}

func newLink(n *node) *link {
	l := &link{node: n, woken: make(chan struct{}, 1)}
	l.config = n.of.settings.brokerConfig(l)
	return l
}

// run fetches until ctx ends.
func (l *link) run(ctx context.Context) {
	defer l.disconnect()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		req, wait := l.take()
		if req != nil {
			resp, err := l.fetch(req)
			l.deliver(ctx, req, resp, err, l.received.Load()-req.before)
			continue
		}
		if l.isEarly() {
			l.prepare()
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.woken:
		case <-timer.C:
			if wait >= idleTimeout {
				l.disconnect() // otherwise Kafka closes the idle connection some day, and the next request fails
			}
		}
	}
}

// fetch sends a request and waits for its answer. A broker that answers nothing while the connection is opened is silent, and not
// slow, so it gets no more time then than the shortest.
func (l *link) fetch(req *request) (*answer, error) {
	l.maxWait.Store(int64(req.wait))
	req.before = l.received.Load()
	opened := true
	if l.broker == nil {
		var err error
		if opened, err = l.open(); err != nil {
			return nil, err
		}
	}
	l.silence.Store(int64(req.silence))
	req.before = l.received.Load()
	a, err := l.ask(req.wire)
	if err == nil {
		return a, nil
	}
	connected, _ := l.broker.Connected()
	broken := l.failure.Load() != nil || !connected
	l.disconnect()
	if opened && l.isSilent() {
		return nil, &silentError{after: req.silence, err: err}
	}
	var code sarama.KError
	if broken || errors.As(err, &code) || errors.Is(err, sarama.ErrUnsupportedVersion) {
		return nil, err
	}
	return nil, &decodingError{err}
}

// open opens the connection. opened is false if it can't be opened: then Fetch returns the error.
func (l *link) open() (opened bool, err error) {
	l.failure.Store(nil)
	l.silence.Store(int64(silence))
	l.broker = sarama.NewBroker(l.node.at.Addr)
	if err := l.broker.Open(l.config); err != nil {
		l.broker = nil
		return false, err
	}
	opened, _ = l.broker.Connected() // waits until the connection is open, or can't be opened
	return opened && l.failure.Load() == nil, nil
}

// isEarly returns whether a connection is to be opened though there is nothing to fetch yet. It returns true once for each
// connect.
func (l *link) isEarly() bool {
	l.node.of.mu.Lock()
	defer l.node.of.mu.Unlock()
	early := l.early
	l.early = false
	return early && l.broker == nil
}

// prepare opens the connection, before there is something to fetch.
func (l *link) prepare() {
	l.maxWait.Store(0)
	if opened, err := l.open(); err == nil && !opened {
		l.disconnect()
	}
}

// ask has sarama send a request. The answer is the one that the connection has kept: it points into memory that the next answer is
// read into.
func (l *link) ask(wire *sarama.FetchRequest) (*answer, error) {
	l.node.of.mu.Lock()
	t := l.tap
	l.node.of.mu.Unlock()
	if t != nil { // else the connection could not be opened, and Fetch returns why
		t.begin()
	}
	if _, err := l.broker.Fetch(wire); err != nil {
		return nil, err
	}
	if kept := t.take(); kept != nil {
		return readAnswer(kept)
	}
	return nil, errNotKept
}

// Dial opens the connection, with TLS if that is configured. sarama calls it.
func (l *link) Dial(network, address string) (net.Conn, error) {
	f := l.node.of
	nc, err := f.settings.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, opened: time.Now(), traffic: &l.traffic}
	c.extend(l.silence.Load())
	f.mu.Lock()
	stopped := l.stopped
	l.conn, l.tap = c, nil
	f.mu.Unlock()
	if stopped {
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	top := net.Conn(c)
	if n := &f.settings.Config.Net; n.TLS.Enable {
		if top, err = secure(f.life, c, address, n.TLS.Config, n.DialTimeout); err != nil {
			_ = nc.Close()
			return nil, err
		}
	}
	t := newTap(top)
	f.mu.Lock()
	defer f.mu.Unlock()
	l.tap = t
	return t, nil
}

// abort closes the connection, which ends the request in flight. The fetcher's mu is held.
func (l *link) abort() {
	if nc := l.conn; nc != nil {
		l.node.of.all.Go(func() { _ = nc.Close() })
	}
}

// disconnect closes the connection, if there is one, and waits until it is closed.
func (l *link) disconnect() {
	if l.broker == nil {
		return
	}
	_ = l.broker.Close() // the broker may be closed already
	l.broker = nil
	l.node.of.mu.Lock()
	defer l.node.of.mu.Unlock()
	l.conn, l.tap = nil, nil
}

// deliver passes the result of a request to its partitions. received is the number of bytes of the answer.
func (l *link) deliver(ctx context.Context, req *request, resp *answer, err error, received int64) {
	f := l.node.of
	results := make([]result, len(req.entries))
	for i := range req.entries {
		if err == nil {
			results[i] = req.entries[i].parse(resp, &f.settings)
		}
	}
	f.mu.Lock()
	defer f.unlock()
	l.request = nil
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	l.node.heard(req, err, now)
	switch {
	case err == nil:
		f.works(kindBroker, l.node.about)
		l.node.throttle(resp.throttle, now)
	case isDecoding(err): // the broker has answered; a partition is to blame, or several are
		f.works(kindBroker, l.node.about)
	default:
		f.failed(kindBroker, l.node.about, err)
	}
	for i := range req.entries {
		e := &req.entries[i]
		p := e.p
		if p.turn != e.turn {
			continue // the partition was closed, trimmed, or sent elsewhere meanwhile
		}
		if results[i].unsure {
			f.all.Go(func() { p.verify(*e, results[i], received) })
			continue
		}
		p.flying = nil
		switch {
		case isDecoding(err) && len(req.entries) > 1:
			p.countFailure(err)
			p.alone = true // to find the partition whose part can't be decoded
		case isDecoding(err):
			p.undecodable(e, err, received)
		case err != nil:
			p.retry(err)
		default:
			p.apply(e, &results[i], received, now)
		}
	}
	l.node.wake()
}

// throttle stops requests to the broker for d, but for maxThrottle at most (KIP-219).
func (n *node) throttle(d time.Duration, now time.Time) {
	if d > maxThrottle {
		n.of.failed(kindThrottle, n.about, fmt.Errorf("throttled by the broker for %v, asking again after %v", d, maxThrottle))
		d = maxThrottle
	} else {
		n.of.works(kindThrottle, n.about)
	}
	if until := now.Add(d); until.After(n.throttled) {
		n.throttled = until
	}
}
