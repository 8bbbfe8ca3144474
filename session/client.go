package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/sabotage"
)

const (
	maxCalls     = 512 // requests in flight, with those whose caller has given up
	maxProofs    = 8   // proofs in flight
	closeLimit   = 5 * time.Second
	bufferMargin = 4 << 10 // of go-zookeeper's send buffer above the largest request
)

var (
	errNoAddress = errors.New("session: no server's name can be resolved")
	errStale     = errors.New("session: no proof of life through this server")
)

// client is one go-zookeeper client, which lives as long as one ZooKeeper session. A request queued in it can only run
// in that session, because once the session is over the client connects no more.
type client struct {
	s          *Session
	opts       *Options
	log        *slog.Logger
	zk         *zk.Conn
	drained    chan struct{}   // closed when go-zookeeper's last goroutine has ended
	ctx        context.Context //nolint:containedctx // the client is a lifetime; the cause says why it ended
	cancel     context.CancelCauseFunc
	hosts      *hosts
	watches    hub
	ephemerals ephemerals
	calls      chan struct{} // a slot for each request in flight
	proofs     chan proof
	made       instant
	wg         sync.WaitGroup // requests in flight
	off        sabotage.Rules
	id         atomic.Int64
	granted    atomic.Int64 // the session's timeout
	seen       atomic.Int64 // the largest zxid of an answer
	epoch      atomic.Int64 // of the newest answer: the upper half of its zxid
	doubted    atomic.Int64 // what the client before had seen, if servers would not have it for that; 0 once that is settled

	mu        sync.Mutex
	trust     trust
	conn      *netConn      // the newest connection
	up        chan struct{} // closed while requests can be sent
	isUp      bool
	upSince   instant
	hopeSince instant // while not up: when there was last reason to hope that the client will come back
	tried     instant // while not up: when a server was last looked up or dialled, or the last connection lost
	forgetful bool    // not to say any more what we have seen
	forgot    uint64  // how many times the connection came up when we did not say it
	links     uint64  // how many times the connection came up
	expired   bool
	giveUp    error
	refusal   error // of our credentials
	renewed   bool  // it goes on in a new session, as it must not
	ended     bool  // no more requests
	rtt       time.Duration
	inc       *Incarnation
	givenUp   []<-chan struct{} // writes of which nobody waits for the outcome; each is closed when it has one
	warnAt    instant           // when the next failed connection is worth a warning
}

// proof is the outcome of a proof of life.
type proof struct {
	sent instant
	err  error
}

// newClient starts a client whose lifetime is part of ctx's values, not of its end.
func newClient(ctx context.Context, s *Session, doubted int64) (*client, error) {
	c := &client{
		s:       s,
		opts:    s.opts,
		log:     s.log,
		drained: make(chan struct{}),
		calls:   make(chan struct{}, maxCalls),
		proofs:  make(chan proof, maxProofs),
		up:      make(chan struct{}),
		made:    s.now(),
		off:     sabotage.Of(ctx),
	}
	c.trust = c.newTrust(s.Timeout())
	c.hopeSince, c.tried = c.made, c.made
	c.ephemerals.budget = s.opts.EphemeralBudget
	c.granted.Store(int64(s.Timeout()))
	c.doubted.Store(doubted)
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.hosts = newHosts(c, s.servers)
	conn, events, err := zk.Connect(s.servers, s.opts.Timeout,
		zk.WithDialer(c.dial),
		zk.WithHostProvider(c.hosts),
		zk.WithEventCallback(c.event),
		zk.WithLogger(zkLogger{c.log}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxReply),
		zk.WithMaxConnBufferSize(s.opts.MaxPacket+bufferMargin),
	)
	if err != nil {
		c.cancel(err)
		return nil, fmt.Errorf("session: connect: %w", err)
	}
	c.zk = conn
	go func() { // end waits for it, if go-zookeeper lets it end
		defer close(c.drained)
		for range events {
			continue // all that matters comes through event
		}
	}()
	return c, nil
}

func (c *client) newTrust(timeout time.Duration) trust {
	return trust{timeout: timeout, minTimeout: c.opts.MinSessionTimeout, off: c.off}
}

func (c *client) timeout() time.Duration { return time.Duration(c.granted.Load()) }

// refused says why there is to be no further connection.
func (c *client) refused() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expired {
		return ErrSessionExpired
	}
	return nil
}

// connectWriting notes that a connect request is about to be written. It returns when that is, and whether the request is to
// keep to itself what we have seen.
func (c *client) connectWriting() (now instant, forgetful bool) {
	now = c.s.now()
	c.mu.Lock()
	c.trust.writing(now)
	c.refresh()
	forgetful = c.forgetful
	c.mu.Unlock()
	c.s.nudge() // trust may end sooner now
	return now, forgetful
}

// forget makes further connect requests say that we have seen nothing. Servers close the connection when a client has seen
// more than they know, which may be because they lost their data, and just so when they have no quorum. What matters is
// whether the session is alive, and that they say to whoever has seen nothing. By now nobody relies any more on what we saw.
func (c *client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.forgetful {
		c.forgetful = true
		c.log.Warn("servers turn us away, asking anew whether the session is alive", keySession, sessionID(c.id.Load()))
	}
}

// saw notes the zxid of an answer. A new session's first one is larger than all that any server had at its beginning, so one
// below what the client before had seen tells why servers turned that away: they have lost their data.
func (c *client) saw(zxid int64) {
	if zxid <= 0 {
		return // an answer that has none
	}
	c.epoch.Store(zxid >> 32)
	for seen := c.seen.Load(); seen < zxid && !c.seen.CompareAndSwap(seen, zxid); {
		seen = c.seen.Load()
	}
	if doubted := c.doubted.Swap(0); zxid < doubted {
		c.s.replaced.Add(1)
		c.log.Error("zookeeper has lost its data", keySession, sessionID(c.id.Load()))
	}
}

// connectAnswered takes over what the server granted.
func (c *client) connectAnswered(written instant, reply connectReply) error {
	if id := c.id.Load(); id != 0 && id != reply.id {
		// A handshake that breaks off after the connect reply, at the credentials, leaves a session that go-zookeeper never
		// learned of and in which no request was sent. If it was the client's first, the next handshake makes another
		// session, which takes its place.
		c.mu.Lock()
		unused := c.links == 0
		if unused || c.off.Off(sabotage.ClientPerSession) {
			c.trust, c.renewed = c.newTrust(reply.timeout), !unused
			c.trust.writing(written)
		}
		c.mu.Unlock()
		if !unused && !c.off.Off(sabotage.ClientPerSession) {
			return malformed("connect reply for another session")
		}
	}
	c.id.Store(reply.id)
	c.granted.Store(int64(reply.timeout))
	c.s.grant(reply.timeout)
	c.mu.Lock()
	c.rtt = c.s.now().mono - written.mono
	c.trust.connected(written, reply.timeout)
	c.refresh()
	c.mu.Unlock()
	c.s.nudge() // trust may end sooner now
	return nil
}

// authRefused notes that a server does not take our credentials.
func (c *client) authRefused(a Auth, code int32) error {
	err := fmt.Errorf("%w: the server refused %v (code %d)", ErrAuthFailed, a, code)
	c.mu.Lock()
	c.refusal = err
	c.mu.Unlock()
	c.s.nudge()
	return err
}

// expire notes that the servers have ended the session.
func (c *client) expire() {
	if c.off.Off(sabotage.ClientPerSession) {
		return
	}
	c.mu.Lock()
	c.expired = true
	c.mu.Unlock()
	c.s.nudge()
}

// refresh brings the end of trust to the incarnation. It needs mu.
func (c *client) refresh() {
	if c.inc == nil {
		return
	}
	if end, ok := c.trust.end(); ok && !c.inc.extend(end) {
		c.s.nudge() // it has lapsed
	}
}

// event is go-zookeeper's callback. It is called inside go-zookeeper's loops, so it must not block nor call back.
func (c *client) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		if e.Type == zk.EventNodeDeleted {
			c.ephemerals.gone(e.Path)
		}
		c.watches.event(e.Type, e.Path)
	case e.State == zk.StateHasSession:
		c.linkUp()
	case e.State == zk.StateExpired:
		c.expire()
	}
}

func (c *client) linkUp() {
	c.mu.Lock()
	if !c.isUp {
		c.isUp = true
		if c.forgetful {
			c.forgetful = false
			c.forgot++
		}
		c.upSince = c.s.now()
		c.links++
		if c.links == 1 || !c.off.Off(sabotage.ClientPerSession) {
			close(c.up)
		}
	}
	again := c.links > 1
	address := c.conn.address
	c.mu.Unlock()
	if again {
		c.s.reconnects.Add(1)
	}
	c.log.Debug("connected", keyServer, address, keySession, sessionID(c.id.Load()), keyTimeout, c.timeout())
	c.s.nudge()
}

// linkDown notes that a connection has ended, before anybody else can know. It is called once for each.
func (c *client) linkDown(n *netConn, err error) {
	c.mu.Lock()
	wasUp := c.isUp && c.conn == n
	if wasUp {
		c.isUp = false
		c.hopeSince = c.s.now()
		c.tried = c.hopeSince
		if !c.off.Off(sabotage.ClientPerSession) {
			c.up = make(chan struct{})
		}
	}
	c.mu.Unlock()
	if errors.Is(err, errFrame) {
		c.s.badFrames.Add(1)
		if n.ready.Load() {
			c.log.Warn("server sent a bad frame", keyServer, n.address, keyError, err)
		}
	}
	if !wasUp {
		if !n.ready.Load() {
			c.attemptFailed(n.address, c.explain(n.address, err))
		}
		return
	}
	if c.ctx.Err() == nil { // else the end of the connection is nothing new
		c.s.note(err)
		c.log.Warn("connection lost", keyServer, n.address, keyError, err)
	}
	c.watches.wakeAll()
	c.s.nudge()
}

// unreachable notes that no server can be reached: another client could not do better, and when the servers come back
// the session may still be there.
func (c *client) unreachable() {
	c.mu.Lock()
	c.hopeSince = c.s.now()
	c.mu.Unlock()
}

// drop closes the current connection; go-zookeeper then looks for another server.
func (c *client) drop(err error) {
	c.mu.Lock()
	n := c.conn
	c.mu.Unlock()
	if n != nil {
		n.fail(err)
	}
}

// prove sends a proof of life: a multi of one check goes through the quorum, changes nothing and wakes nobody.
func (c *client) prove(sent instant) {
	path := c.full(c.opts.CheckPath)
	c.start(func() {
		var err error
		switch {
		case c.off.Off(sabotage.ProofByQuorum):
			_, _, err = c.zk.Exists(path)
		case c.off.Off(sabotage.ProofBeyondSync):
			_, err = c.zk.Sync(path)
		default:
			_, err = c.zk.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
		}
		c.proofs <- proof{sent: sent, err: err} // there is room for all that are in flight
	})
}

// proved takes over an answered proof. It returns until when the session may be trusted now, and whether that is long
// enough for the next answer to be in time.
func (c *client) proved(sent instant) (end instant, lasting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rtt = c.s.now().mono - sent.mono
	c.trust.prove(sent)
	c.refresh()
	end, _ = c.trust.end()
	return end, end.until(c.s.now()) >= c.trust.timeout/4
}

// lead makes inc the incarnation whose window follows the proofs; nil for none.
func (c *client) lead(inc *Incarnation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inc = inc
	c.refresh()
}

// start runs f, which calls go-zookeeper, on a goroutine that end waits for. It returns false when the client has
// ended.
func (c *client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.wg.Go(f)
	return true
}

// end ends the client for that reason: no request is sent any more, those in flight end, and go-zookeeper is closed,
// which also ends the ZooKeeper session if the servers can be reached. It returns at once; done is closed when nothing
// of the client is left.
func (c *client) end(cause error) (done <-chan struct{}) {
	c.cancel(cause)
	c.watches.close()
	c.mu.Lock()
	c.ended = true
	n, up := c.conn, c.isUp
	c.mu.Unlock()
	if n != nil && !up {
		_ = n.Close() // in a handshake, or useless; it always succeeds
	}
	finished := make(chan struct{})
	c.s.wg.Go(func() {
		defer close(finished)
		c.zk.Close()
		c.mu.Lock()
		n := c.conn
		c.mu.Unlock()
		if n != nil {
			_ = n.Close() // it always succeeds
		}
		timer := time.NewTimer(closeLimit)
		defer timer.Stop()
		select {
		case <-c.drained:
		case <-timer.C:
			c.s.abandoned.Add(1)
			c.log.Error("client did not end when closed")
		}
		c.wg.Wait()
	})
	return finished
}

// full returns the path as the servers know it.
func (c *client) full(path string) string { return fullPath(c.opts.Chroot, path) }

// fullPath returns path below a chroot.
func fullPath(chroot, path string) string {
	switch {
	case chroot == "":
		return path
	case path == "/":
		return chroot
	default:
		return chroot + path
	}
}

// zkLogger brings go-zookeeper's log into ours.
type zkLogger struct{ log *slog.Logger }

// Printf logs.
func (l zkLogger) Printf(format string, args ...any) {
	l.log.Debug("go-zookeeper", keyText, fmt.Sprintf(format, args...))
}
