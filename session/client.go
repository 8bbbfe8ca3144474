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

	"github.com/kielgo/kiel/internal/operr"
)

const (
	maxCalls     = 512             // requests in flight, including those whose caller has given up
	maxProofs    = 8               // proofs in flight
	closeLimit   = 5 * time.Second // for go-zookeeper's goroutines to end after Close
	bufferMargin = 4 << 10         // of go-zookeeper's send buffer above the largest request
)

var (
	errNoAddress = errors.New("no server name can be resolved")
	errStale     = errors.New("no proof of life through this server")
	errLeft      = errors.New("left to its timeout")
)

// client is one go-zookeeper client, which lives as long as one ZooKeeper session. It does not connect again once that session is
// over, so a request in its queue can run in no other session. (A go-zookeeper client left alone makes a new session and runs its
// old queue there.)
type client struct {
	s            *Session
	opts         *Options
	log          *slog.Logger
	zk           *zk.Conn
	receiver     *zk.Conn        // the same, for makeRoom, which may be called before zk is set
	room         int             // the largest answer that go-zookeeper takes; only makeRoom uses it
	drained      chan struct{}   // closed when go-zookeeper's last goroutine has ended
	ctx          context.Context //nolint:containedctx // the client's lifetime; its cause is why the client ended
	cancel       context.CancelCauseFunc
	hosts        *hosts
	watches      hub
	ephemerals   ephemerals
	calls        chan struct{} // a slot for each request in flight
	proofs       chan proof    // the outcomes of proofs of life, for Run's goroutine
	made         instant
	wg           sync.WaitGroup // requests in flight
	id           atomic.Int64   // the session's id; 0 before the first connect reply
	granted      atomic.Int64   // the session timeout in nanoseconds as granted last; before that, as asked for
	lastZxid     atomic.Int64   // the largest zxid of any answer
	answerZxid   atomic.Int64   // the zxid of the newest answer: after a loss of the servers' data it is smaller
	leaderEpoch  atomic.Int64   // the leader's epoch: the upper half of the newest answer's zxid
	rejectedZxid atomic.Int64   // runner.rejectedZxid, until the first answer has been compared with it; then 0

	mu sync.Mutex
	link
	verdicts
	trust   trust             // until when the session may be trusted
	conn    *netConn          // the newest connection
	ended   bool              // no request is started any more
	rtt     time.Duration     // how long the newest answered connect request or proof took
	inc     *Incarnation      // whose window follows trust; nil for none
	givenUp []<-chan struct{} // one for each write whose caller has given up; closed when the write has an outcome
	warnAt  instant           // from when on a failed connection is logged as a warning again
}

// link is the state of a client's connection.
type link struct {
	up               chan struct{} // closed while requests can be sent
	isUp             bool          // up is closed
	upSince          instant       // while isUp: since when
	reachableSince   instant       // while not up: since when servers accept connections but do not resume the session
	tried            instant       // while not up: when a server was last looked up or dialled, or the last connection was lost
	links            uint64        // how many times the connection came up
	hideLastZxid     bool          // connect requests send zxid 0 in place of the last one
	linksWithoutZxid uint64        // how many times the connection came up while hideLastZxid
}

// verdicts say that a client's session is over, or to be given up.
type verdicts struct {
	expired bool  // the servers have ended the session
	giveUp  error // why the session is to be given up; nil if it is not
	left    bool  // the session is not to be closed: it is left to its timeout (LetExpire)
	refusal error // how a server refused our credentials, until Run's goroutine handles it; else nil
}

// proof is the outcome of a proof of life.
type proof struct {
	sent instant // when it was sent
	err  error   // go-zookeeper's; nil when the quorum accepted it
}

// reading is a copy of a client's state, all of one moment.
type reading struct {
	link
	verdicts
	timeout time.Duration
	newest  instant // the newest proof or sign of life
	proven  bool    // whether there is a newest
}

// reading returns a copy of the state.
func (c *client) reading() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest, proven := c.trust.newest()
	return reading{link: c.link, verdicts: c.verdicts, timeout: c.trust.timeout, newest: newest, proven: proven}
}

// newClient starts a client, which runs until end is called: ctx, which is runner.life, never ends. rejectedZxid is the runner's,
// too.
func newClient(ctx context.Context, s *Session, rejectedZxid int64) (*client, error) {
	c := &client{
		s:       s,
		opts:    s.opts,
		log:     s.log,
		drained: make(chan struct{}),
		calls:   make(chan struct{}, maxCalls),
		proofs:  make(chan proof, maxProofs),
		link:    link{up: make(chan struct{})},
		made:    s.now(),
	}
	c.trust = c.newTrust(s.Timeout())
	c.reachableSince, c.tried = c.made, c.made
	c.ephemerals.budget = s.opts.EphemeralBudget
	c.granted.Store(int64(s.Timeout()))
	c.rejectedZxid.Store(rejectedZxid)
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.hosts = newHosts(c, s.servers)
	conn, events, err := zk.Connect(s.servers, s.opts.Timeout,
		zk.WithDialer(c.dial),
		zk.WithHostProvider(c.hosts),
		zk.WithEventCallback(c.event),
		zk.WithLogger(zkLogger{c.log}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(firstBuffer),                       // netConn has a limit for each answer, and calls makeRoom
		zk.WithMaxConnBufferSize(s.opts.MaxPacket+bufferMargin), // this one can't grow
		func(conn *zk.Conn) { c.receiver, c.room = conn, firstBuffer },
	)
	if err != nil {
		c.cancel(err)
		return nil, operr.New("", "connect", "", err)
	}
	c.zk = conn
	go func() { // client.end waits for this goroutine, for closeLimit at most
		defer close(c.drained)
		for range events {
			continue // client.event gets the same events, and misses none
		}
	}()
	return c, nil
}

// firstBuffer is the size of the buffer for answers with which go-zookeeper begins. Its own is 1.5 MiB, and most sessions never
// get an answer of that size.
const firstBuffer = 16 << 10

// makeRoom lets go-zookeeper take an answer of that size: it makes a larger buffer when one comes. Only go-zookeeper's receiving
// goroutine, which reads the limit, calls makeRoom; there is one at a time.
func (c *client) makeRoom(size int) {
	if size > c.room {
		c.room = size
		zk.WithMaxBufferSize(size)(c.receiver)
	}
}

func (c *client) newTrust(timeout time.Duration) trust {
	return trust{timeout: timeout, minTimeout: c.opts.MinSessionTimeout}
}

func (c *client) timeout() time.Duration { return time.Duration(c.granted.Load()) }

// isLeft reports whether the session is left to its timeout.
func (c *client) isLeft() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// mayConnect returns why no further connection may be made, or nil.
func (c *client) mayConnect() error {
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

// connectWriting records that a connect request is about to be written. It returns the moment, and whether the request must hide
// the last zxid.
func (c *client) connectWriting() (now instant, hideLastZxid bool) {
	now = c.s.now()
	c.mu.Lock()
	c.trust.writing(now)
	c.refresh()
	hideLastZxid = c.hideLastZxid
	c.mu.Unlock()
	c.s.nudge() // trust may end sooner now
	return now, hideLastZxid
}

// hideZxid makes further connect requests send zxid 0. A server closes the connection of a client whose last zxid is larger than
// its own, as after a loss of its data; it also closes connections when it has no quorum, and the client can't tell which it is.
// If a client sends zxid 0, the server answers whether the session is alive. Hiding the zxid is safe, because by now nobody
// relies any more on what was read. A go-zookeeper client would be refused for ever (go-zookeeper/zk#37).
//
// The caller read the client's state before. hideZxid does nothing when a connection was made since, or no server was reached.
func (c *client) hideZxid(now instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused := !c.isUp && now.mono-c.reachableSince.mono >= c.trust.timeout; refused && !c.hideLastZxid {
		c.hideLastZxid = true
		c.log.Warn("servers keep refusing the session; reconnecting without its last zxid", keySession, sessionID(c.id.Load()))
	}
}

// observeZxid records the zxid of an answer. The first zxid of a new session is larger than any that a server had when the
// session began. If it is smaller than the rejected zxid of the client before, the servers have lost data.
func (c *client) observeZxid(zxid int64) {
	if zxid <= 0 {
		return // an answer without a zxid
	}
	c.leaderEpoch.Store(zxid >> 32)
	c.answerZxid.Store(zxid)
	for last := c.lastZxid.Load(); last < zxid && !c.lastZxid.CompareAndSwap(last, zxid); {
		last = c.lastZxid.Load()
	}
	if rejected := c.rejectedZxid.Swap(0); zxid < rejected {
		c.s.replaced.Add(1)
		c.log.Error("ZooKeeper has lost its data", keySession, sessionID(c.id.Load()))
	}
}

// connectAnswered takes over the session id and the timeout of a connect reply.
func (c *client) connectAnswered(written instant, reply connectReply) error {
	if id := c.id.Load(); id != 0 && id != reply.id {
		// Another id is allowed for a client that was never connected: if its first handshake broke off after the connect reply,
		// at the credentials, go-zookeeper never learned of that session, and no request was sent in it. The next handshake made
		// another session, which takes its place.
		c.mu.Lock()
		unused := c.links == 0
		if unused {
			c.trust = c.newTrust(reply.timeout)
			c.trust.writing(written)
		}
		c.mu.Unlock()
		if !unused {
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

// authRefused records that a server refused our credentials, and returns the error.
func (c *client) authRefused(a Auth, code int32) error {
	err := fmt.Errorf("%w: the server refused %v (code %d)", ErrAuthFailed, a, code)
	c.mu.Lock()
	c.refusal = err
	c.mu.Unlock()
	c.s.nudge()
	return err
}

// expire records that the servers have ended the session.
func (c *client) expire() {
	c.mu.Lock()
	c.expired = true
	c.mu.Unlock()
	c.s.nudge()
}

// refresh tells the incarnation until when trust lasts now. The caller holds mu.
func (c *client) refresh() {
	if c.inc == nil {
		return
	}
	if end, ok := c.trust.end(); ok && !c.inc.extend(end) {
		c.s.nudge() // trust has ended
	}
}

// event is go-zookeeper's callback. It runs inside go-zookeeper's loops, so it must neither block nor call go-zookeeper.
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

// linkUp records that a connection has made or resumed the session.
func (c *client) linkUp() {
	c.mu.Lock()
	if !c.isUp {
		c.isUp = true
		if c.hideLastZxid {
			c.hideLastZxid = false
			c.linksWithoutZxid++
		}
		c.upSince = c.s.now()
		c.links++
		close(c.up)
	}
	again := c.links > 1
	address := c.conn.address
	c.mu.Unlock()
	if again {
		c.s.reconnects.Add(1)
		c.log.Info("connected to ZooKeeper again", keyServer, address, keySession, sessionID(c.id.Load()))
	}
	c.log.Debug("connected", keyServer, address, keySession, sessionID(c.id.Load()), keyTimeout, c.timeout())
	c.s.nudge()
}

// linkDown records that a connection has ended, before go-zookeeper knows. It is called once for each connection.
func (c *client) linkDown(n *netConn, err error) {
	c.watches.unlinked(n)
	c.mu.Lock()
	wasUp := c.isUp && c.conn == n
	if wasUp {
		c.isUp = false
		c.reachableSince = c.s.now()
		c.tried = c.reachableSince
		c.up = make(chan struct{})
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
	c.judge(n, err)
	if c.ctx.Err() == nil { // otherwise the client itself has ended the connection
		c.s.recordError(err)
		c.log.Warn("connection lost", keyServer, n.address, keyError, err)
	}
	c.watches.wakeAll()
	c.s.nudge()
}

// unreachable records that no server accepts connections. That is no refusal of the session, which may still be alive when the
// servers come back.
func (c *client) unreachable() {
	c.mu.Lock()
	c.reachableSince = c.s.now()
	c.mu.Unlock()
}

// drop closes the current connection; go-zookeeper then looks for another server.
func (c *client) drop(err error) {
	c.mu.Lock()
	n := c.conn
	c.mu.Unlock()
	if n != nil {
		n.drop(err)
	}
}

// prove sends a proof of life: a multi of one check, which goes through the quorum, changes nothing and wakes no watch.
func (c *client) prove(sent instant) {
	path := c.full(c.opts.CheckPath)
	c.start(func() {
		_, err := c.zk.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
		c.proofs <- proof{sent: sent, err: err} // never blocks: at most maxProofs are in flight
	})
}

// proved records an answered proof. It returns until when the session may be trusted now, and whether that is long enough for the
// next proof to be answered in time.
func (c *client) proved(sent instant) (end instant, lasting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rtt = c.s.now().mono - sent.mono
	c.trust.prove(sent)
	c.refresh()
	end, _ = c.trust.end()
	return end, end.until(c.s.now()) >= c.trust.timeout/4
}

// attach makes inc the incarnation whose window follows the proofs; nil means none.
func (c *client) attach(inc *Incarnation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inc = inc
	c.refresh()
}

// start runs f, which calls go-zookeeper, on a goroutine that end waits for. It returns false, and does not run f, when the
// client has ended.
func (c *client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.wg.Go(f)
	return true
}

// end ends the client, with cause as the reason: no request is sent any more, those in flight end, and go-zookeeper is closed,
// which also closes the ZooKeeper session if a server can be reached, unless the session is left to its timeout. end returns at
// once; done is closed when nothing of the client is left.
func (c *client) end(cause error) (done <-chan struct{}) {
	c.cancel(cause)
	c.watches.close()
	c.mu.Lock()
	c.ended = true
	n, up := c.conn, c.isUp
	c.mu.Unlock()
	if n != nil && !up {
		_ = n.Close() // its handshake is not over, or it is broken; Close never fails
	}
	finished := make(chan struct{})
	c.s.wg.Go(func() {
		defer close(finished)
		c.zk.Close()
		c.mu.Lock()
		n := c.conn
		c.mu.Unlock()
		if n != nil {
			_ = n.Close() // never fails
		}
		timer := time.NewTimer(closeLimit)
		defer timer.Stop()
		select {
		case <-c.drained:
		case <-timer.C:
			c.s.abandoned.Add(1)
			c.log.Error("ZooKeeper client did not end when closed")
		}
		c.wg.Wait()
	})
	return finished
}

// full returns path as the servers know it, below the chroot.
func (c *client) full(path string) string { return fullPath(c.opts.Chroot, path) }

// fullPath returns path below chroot.
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

// zkLogger writes go-zookeeper's log to the session's logger, at level debug.
type zkLogger struct{ log *slog.Logger }

// Printf logs.
func (l zkLogger) Printf(format string, args ...any) {
	l.log.Debug("go-zookeeper", keyText, fmt.Sprintf(format, args...))
}
