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
	stopped bool

	tap *tap // on top of conn; sarama sets it while the link's goroutine waits for the connection
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
			_ = l.open() // what fails is tried again when there is something to fetch
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
	if l.broker == nil {
		if err := l.open(); err != nil {
			return nil, err
		}
	}
	l.maxWait.Store(int64(req.wait))
	l.silence.Store(int64(req.silence))
	req.before = l.received.Load()
	a, err := l.ask(req.wire)
	if err == nil {
		return a, nil
	}
	connected, _ := l.broker.Connected()
	broken := l.failure.Load() != nil || !connected
	l.disconnect()
	var code sarama.KError
	switch {
	case l.isSilent():
		return nil, &silentError{after: req.silence, err: err}
	case broken || errors.As(err, &code) || errors.Is(err, sarama.ErrUnsupportedVersion):
		return nil, err
	default:
		return nil, &decodingError{err}
	}
}

// open opens the connection.
func (l *link) open() error {
	l.failure.Store(nil)
	l.maxWait.Store(0)
	l.silence.Store(int64(silence))
	l.broker = sarama.NewBroker(l.node.at.Addr)
	if err := l.broker.Open(l.config); err != nil {
		l.broker = nil
		return err
	}
	connected, err := l.broker.Connected() // waits until the connection is open, or can't be opened
	if failure := l.failure.Load(); err == nil && failure != nil {
		err = *failure // sarama goes on after a handshake that failed
	}
	if err == nil && !connected {
		err = sarama.ErrNotConnected
	}
	if err != nil {
		l.disconnect()
	}
	return err
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

// ask has sarama send a request. The answer is the one that the connection has kept: it points into memory that the next answer
// is read into.
func (l *link) ask(wire *sarama.FetchRequest) (*answer, error) {
	l.tap.begin()
	if _, err := l.broker.Fetch(wire); err != nil {
		return nil, err
	}
	if kept := l.tap.take(); kept != nil {
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
	l.conn = c
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
	l.tap = newTap(top)
	return l.tap, nil
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
	l.conn = nil
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
		p.flying = nil
		switch {
		case isDecoding(err):
			p.countFailure(err)
			if p.alone = true; len(req.entries) == 1 { // else this finds the partition whose part can't be decoded
				p.undecodable(e, err, received)
			}
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
