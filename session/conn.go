package session

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// netConn is a connection for go-zookeeper, and does what go-zookeeper lacks:
//
//   - It writes the configured timeout into the connect request and reads the granted one from the reply. (go-zookeeper asks for
//     the timeout that it was last granted, so one server with a lower limit would lower it for good.)
//   - It hides go-zookeeper's last zxid while servers refuse the session (client.hideZxid).
//   - It presents the credentials as part of the handshake. (go-zookeeper's own way can block for ever when the connection breaks
//     meanwhile.)
//   - It limits the time of the handshake. (go-zookeeper waits for 6.7 T.)
//   - It passes on whole frames only, and only those that go-zookeeper can decode; otherwise it drops the connection.
//   - It sets the watches of DataWatches.
//   - It sets the watch flag in reads that somebody waits on a watch of. (go-zookeeper's own lists of watches are never used:
//     they grow with each call, and setting them again after a reconnect is a data race.)
type netConn struct {
	net.Conn
	c       *client
	address string        // as dialled, for logs
	r       *bufio.Reader // of Conn
	limit   time.Duration // how long the handshake may take
	closing sync.Once     // of fail
	ready   atomic.Bool   // the handshake is over
	dropped atomic.Bool   // this side has ended the connection
	written instant       // when the connect request was written
	down    chan struct{} // closed when the connection is broken, or closed

	answered   chan struct{} // closed when a request was answered, for the first time
	toAnswered func()        // closes answered

	buf  []byte // the frame read last
	rest []byte // the part of buf that was not passed on yet
	skip int    // the size of what is left of an answer that is too large, behind rest

	mu      sync.Mutex
	pending map[int32]request // the requests not answered yet, by xid

	watching watchRequests
}

// request is what netConn must know of a request to check its answer.
type request struct {
	op    int32   // ZooKeeper's number of the operation
	size  int     // of the request, in bytes, without its length
	begun instant // when a large request was about to be written
}

// mayBeLarge reports whether the answer has data, children or an ACL.
func (r request) mayBeLarge() bool {
	return r.op == opGetData || r.op == opChildren2 || r.op == opGetACL
}

// largest returns how large the frame of the answer may be, of which most is the limit for any answer.
func (r request) largest(most int) int {
	switch r.op {
	case opGetData, opChildren2, opGetACL:
		return most
	case opMulti:
		return smallReply + 4*r.size // the worst case is a stat for each set of empty data
	case opCreate, opSync:
		return smallReply + r.size // a path
	default:
		return smallReply
	}
}

func newNetConn(c *client, raw net.Conn, address string, limit time.Duration) *netConn {
	answered := make(chan struct{})
	return &netConn{
		Conn:    raw,
		c:       c,
		address: address,
		r:       bufio.NewReaderSize(raw, 16<<10),
		limit:   limit,
		down:    make(chan struct{}),
		pending: make(map[int32]request),

		answered: answered, toAnswered: sync.OnceFunc(func() { close(answered) }),
	}
}

// Write sends one whole frame: go-zookeeper writes one request at a time.
func (n *netConn) Write(b []byte) (int, error) {
	frame := b
	switch {
	case !n.ready.Load():
		if len(b) < connectRequestSize {
			return 0, errors.New("not a connect request")
		}
		// The handshake's time limit begins here. go-zookeeper's own deadlines are ignored until the handshake is over.
		if err := n.Conn.SetDeadline(time.Now().Add(n.limit)); err != nil {
			return 0, err
		}
		frame = slices.Clone(b)
		binary.BigEndian.PutUint32(frame[connectRequestTimeout:], uint32(n.c.opts.Timeout.Milliseconds()))
		var hideLastZxid bool
		if n.written, hideLastZxid = n.c.connectWriting(); hideLastZxid {
			clear(frame[connectRequestLastZxid:connectRequestTimeout])
		}
	case n.closes(b) && n.c.isLeft():
		n.drop(errLeft) // go-zookeeper, which waits for an answer to its close request, gets this end from Read
		return len(b), nil
	case len(b) >= 12:
		frame = n.register(b)
	}
	if _, err := n.Conn.Write(frame); err != nil {
		n.fail(err)
		if !n.ready.Load() {
			return 0, err
		}
		// go-zookeeper gets the failure from Read alone. If Write reported it, too, go-zookeeper would answer the request twice,
		// and while being closed a third time, on a channel with room for two, and hang for ever.
	}
	return len(b), nil
}

// closes reports whether a request closes the session.
func (n *netConn) closes(b []byte) bool {
	return len(b) >= 12 && int32(binary.BigEndian.Uint32(b[8:])) == opClose
}

// register records the request, and sets the watch flag, which is the last byte of a read, if somebody waits for the watch.
func (n *netConn) register(b []byte) []byte {
	xid, op := int32(binary.BigEndian.Uint32(b[4:])), int32(binary.BigEndian.Uint32(b[8:]))
	if xid >= 0 {
		r := request{op: op, size: len(b) - 4}
		if r.size >= largeWrite {
			r.begun = n.c.s.now()
		}
		n.mu.Lock()
		n.pending[xid] = r
		n.mu.Unlock()
	}
	if op != opExists && op != opGetData && op != opChildren2 {
		return b
	}
	p := parser{rest: b[12:]}
	path := p.bytes()
	if p.failed || len(p.rest) != 1 || !n.c.watches.wanted(op, string(path)) {
		return b
	}
	b = slices.Clone(b)
	b[len(b)-1] = 1
	return b
}

// Read passes on the frames of the server, after they were checked.
func (n *netConn) Read(b []byte) (int, error) {
	if len(n.rest) == 0 {
		next := n.reply
		if !n.ready.Load() {
			next = n.handshake
		}
		frame, err := next()
		if err != nil {
			n.fail(err)
			return 0, err
		}
		n.c.makeRoom(len(frame))
		n.rest = frame
	}
	copied := copy(b, n.rest)
	n.rest = n.rest[copied:]
	return copied, nil
}

// frame reads one frame into the connection's buffer.
func (n *netConn) frame(smallest, largest int) ([]byte, error) {
	const keep = 64 << 10
	if cap(n.buf) > keep {
		n.buf = nil
	}
	var err error
	n.buf, err = readFrame(n.r, n.buf, smallest, largest)
	return n.buf, err
}

// handshake reads the connect reply, authenticates, and returns the reply's frame.
func (n *netConn) handshake() ([]byte, error) {
	frame, err := n.frame(minConnectReply, maxConnectReply)
	if err != nil {
		return nil, err
	}
	frame = slices.Clone(frame)
	reply, err := parseConnectReply(frame[4:])
	if err != nil {
		return nil, err
	}
	if reply.expired() {
		n.c.expire()
		clear(frame[4+4 : 4+4+4+8]) // timeout and id are set to 0, so that go-zookeeper ends the session, too
	} else {
		if err := n.c.connectAnswered(n.written, reply); err != nil {
			return nil, err
		}
		for _, a := range n.c.opts.Auth {
			if err := n.authenticate(a); err != nil {
				return nil, err
			}
		}
		// The watches to be set since the last answer are known now, before there are answers on this connection. It may be much
		// for the time that a handshake has.
		if again := n.c.watches.linked(n, n.c.answerZxid.Load()); len(again) > 0 {
			n.c.start(func() {
				for since, paths := range again {
					n.setWatches(since, paths)
				}
			})
		}
	}
	if err := n.Conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	n.ready.Store(true)
	return frame, nil
}

// authenticate presents one set of credentials and waits for the answer.
func (n *netConn) authenticate(a Auth) error {
	if _, err := n.Conn.Write(appendAuth(nil, a)); err != nil {
		return err
	}
	frame, err := n.frame(headerSize, smallReply)
	if err != nil {
		return err
	}
	p := parser{rest: frame[4:]}
	xid, _, code := p.int32(), p.int64(), p.int32()
	if xid != xidAuth {
		return malformed("xid %d in answer to credentials", xid)
	}
	if code != 0 {
		return n.c.authRefused(a, code)
	}
	return nil
}

// largest looks at the header of the next frame, and returns how large that frame may be. Answers that nobody asked for must take
// no memory, even when they are really sent.
func (n *netConn) largest() (int, error) {
	head, err := n.r.Peek(4)
	if err != nil {
		return 0, err
	}
	if length := binary.BigEndian.Uint32(head); length < headerSize || length > incredible {
		return n.c.opts.MaxAnswer, nil // readFrame refuses this length
	}
	if head, err = n.r.Peek(4 + headerSize); err != nil {
		return 0, err
	}
	switch xid := int32(binary.BigEndian.Uint32(head[4:])); {
	case xid == xidEvent:
		return smallReply + n.c.opts.MaxPacket, nil // a path
	case xid < 0:
		return smallReply, nil
	default:
		n.mu.Lock()
		defer n.mu.Unlock()
		asked, known := n.pending[xid]
		if !known {
			return 0, malformed("xid %d of no request", xid)
		}
		return asked.largest(n.c.opts.MaxAnswer), nil
	}
}

// refuse looks whether the next frame is the answer to a read, and too large. If so it returns an error answer in its place,
// whose code is the size (see codeError). What is left of the frame is read, and dropped, before the next one: the connection,
// and what others wait for on it, need not end with it.
func (n *netConn) refuse() ([]byte, error) {
	head, err := n.r.Peek(4)
	if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if int64(length) <= int64(n.c.opts.MaxAnswer) || length > incredible {
		return nil, nil
	}
	if head, err = n.r.Peek(4 + headerSize); err != nil {
		return nil, err
	}
	p := parser{rest: head[4:]}
	xid, zxid := p.int32(), p.int64()
	n.mu.Lock()
	asked, known := n.pending[xid]
	known = known && asked.mayBeLarge()
	if known {
		delete(n.pending, xid)
	}
	n.mu.Unlock()
	if !known {
		return nil, nil
	}
	n.toAnswered()
	n.c.observeZxid(zxid)
	frame := binary.BigEndian.AppendUint32(nil, headerSize)
	frame = binary.BigEndian.AppendUint32(frame, uint32(xid))
	frame = binary.BigEndian.AppendUint64(frame, uint64(zxid))
	frame = binary.BigEndian.AppendUint32(frame, length)
	n.skip = 4 + int(length)
	return frame, nil
}

// skipRest drops what is left of an answer that was too large. go-zookeeper's time limit for a frame holds for that, too.
func (n *netConn) skipRest() error {
	skipped, err := n.r.Discard(n.skip)
	n.skip -= skipped
	return err
}

// reply reads the next frame that go-zookeeper can use, and skips late answers to credentials.
func (n *netConn) reply() ([]byte, error) {
	for {
		if err := n.skipRest(); err != nil {
			return nil, err
		}
		if frame, err := n.refuse(); frame != nil || err != nil {
			return frame, err
		}
		largest, err := n.largest()
		if err != nil {
			return nil, err
		}
		frame, err := n.frame(headerSize, largest)
		if err != nil {
			return nil, err
		}
		p := parser{rest: frame[4:]}
		xid, zxid, code := p.int32(), p.int64(), p.int32()
		switch {
		case xid == xidPing:
			return frame, nil
		case xid == xidAuth:
			continue
		case xid == xidSetWatches:
			if err := n.watchesSet(code); err != nil {
				return nil, err
			}
			continue
		case xid == xidEvent:
			return frame, checkEvent(p.rest)
		case xid < 0:
			return nil, malformed("xid %d", xid)
		}
		n.mu.Lock()
		op := n.pending[xid].op
		delete(n.pending, xid)
		n.mu.Unlock()
		n.toAnswered()
		n.c.observeZxid(zxid)
		switch {
		case code >= minMaxAnswer:
			return nil, malformed("error code %d", code) // codeError would take it for a size
		case code != 0:
			return frame, nil
		}
		return frame, checkReply(op, p.rest)
	}
}

// fail records that the connection is broken, for the reason err, and closes it. Only the first call counts.
func (n *netConn) fail(err error) {
	n.closing.Do(func() {
		n.c.linkDown(n, err)
		close(n.down)
		_ = n.Conn.Close() // err matters, not this error
	})
}

// drop closes the connection, for the reason err, which is this side's.
func (n *netConn) drop(err error) {
	n.dropped.Store(true)
	n.fail(err)
}

// Close closes the connection.
func (n *netConn) Close() error {
	n.drop(net.ErrClosed)
	return nil
}

// SetDeadline, SetReadDeadline and SetWriteDeadline do nothing during the handshake, which has its own deadline.

// SetDeadline sets both deadlines.
func (n *netConn) SetDeadline(t time.Time) error {
	if !n.ready.Load() {
		return nil
	}
	return n.Conn.SetDeadline(t)
}

// SetReadDeadline sets the deadline of reads.
func (n *netConn) SetReadDeadline(t time.Time) error {
	if !n.ready.Load() {
		return nil
	}
	return n.Conn.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of writes.
func (n *netConn) SetWriteDeadline(t time.Time) error {
	if !n.ready.Load() {
		return nil
	}
	return n.Conn.SetWriteDeadline(t)
}
