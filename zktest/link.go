package zktest

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// maxInFlight is how many bytes may be in flight in one direction of a connection before writers wait.
const maxInFlight = 4 << 20

// link is a virtual connection: two directions, two ends. The network's mutex guards all fields.
type link struct {
	net      *Network
	client   *Client
	up, down *half // to the server, to the client
	broken   bool  // whether the connection was reset
	closed   int   // how many ends have closed
}

// reset breaks the connection for both ends at once.
func (k *link) reset() {
	if k.broken {
		return
	}
	k.broken = true
	for _, h := range []*half{k.up, k.down} {
		h.chunks, h.size = nil, 0
		h.signal()
	}
	delete(k.net.links, k)
}

// half is one direction of a link.
type half struct {
	link     *link
	dir      Direction
	chunks   []chunk       // the bytes in flight, in their order
	size     int           // how many bytes chunks have
	end      *time.Time    // when the reader learns that the writer has closed; nil if the writer has not
	unread   bool          // whether the reader has closed: new bytes are dropped
	notifies chan struct{} // closed at the next change; nil if nobody waits
}

// chunk is some bytes in flight.
type chunk struct {
	data []byte
	at   time.Time // when the bytes arrive; zero is at once
}

func newHalf(k *link, dir Direction) *half { return &half{link: k, dir: dir} }

// changed returns a channel that closes at the next change of the half.
func (h *half) changed() <-chan struct{} {
	if h.notifies == nil {
		h.notifies = make(chan struct{})
	}
	return h.notifies
}

// signal wakes those that wait for a change of the half.
func (h *half) signal() {
	if h.notifies != nil {
		close(h.notifies)
		h.notifies = nil
	}
}

// held reports whether a black hole holds the half's bytes back.
func (h *half) held() bool { return h.link.client.hole()&h.dir != 0 }

// arrival returns when bytes that are sent now arrive. Readers get them only after the bytes sent before, which come first in
// chunks.
func (h *half) arrival() time.Time {
	if d := h.link.client.delay(); d > 0 {
		return time.Now().Add(d)
	}
	return time.Time{}
}

// end is one end of a link, a net.Conn.
type end struct {
	link          *link
	in, out       *half
	local, remote addr
	done          chan struct{} // closed by Close
	closed        bool          // whether Close was called; guarded by the network's mutex
	linger        bool          // whether Close resets the connection
	readBy        deadline
	writeBy       deadline
}

func (e *end) init() {
	e.done = make(chan struct{})
	e.readBy.init(e.link.net)
	e.writeBy.init(e.link.net)
}

// fail returns err as a net.OpError.
func (e *end) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "virtual", Source: e.local, Addr: e.remote, Err: err}
}

// Read reads bytes that have arrived. It waits until there are some.
func (e *end) Read(p []byte) (int, error) {
	for {
		n, wait, err := e.tryRead(p)
		if err == io.EOF { //nolint:errorlint // exactly this value
			return 0, io.EOF
		}
		if err != nil {
			return 0, e.fail("read", err)
		}
		if wait.changed == nil {
			return n, nil
		}
		if err := wait.block(e.done); err != nil {
			return 0, e.fail("read", err)
		}
	}
}

// waiting is what a blocked Read or Write waits for.
type waiting struct {
	changed <-chan struct{} // closed at the next change of the half; nil if nothing is to be waited for
	expired <-chan struct{} // closed at the deadline
	until   time.Time       // when the next bytes arrive; zero if that is not known
}

// block waits.
func (w waiting) block(done <-chan struct{}) error {
	var arrived <-chan time.Time
	if !w.until.IsZero() {
		timer := time.NewTimer(time.Until(w.until))
		defer timer.Stop()
		arrived = timer.C
	}
	select {
	case <-w.changed:
	case <-arrived:
	case <-done:
		return net.ErrClosed
	case <-w.expired:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// tryRead reads without waiting, or returns what to wait for.
func (e *end) tryRead(p []byte) (int, waiting, error) {
	e.link.net.mu.Lock()
	defer e.link.net.mu.Unlock()
	h := e.in
	switch {
	case e.closed:
		return 0, waiting{}, net.ErrClosed
	case e.link.broken:
		return 0, waiting{}, os.NewSyscallError("read", syscall.ECONNRESET)
	case e.readBy.over:
		return 0, waiting{}, os.ErrDeadlineExceeded
	case len(p) == 0:
		return 0, waiting{}, nil
	case h.held():
		return 0, waiting{changed: h.changed(), expired: e.readBy.expired}, nil
	}
	next := h.end
	if len(h.chunks) > 0 {
		next = &h.chunks[0].at
	}
	switch {
	case next == nil:
		return 0, waiting{changed: h.changed(), expired: e.readBy.expired}, nil
	case !next.IsZero() && time.Until(*next) > 0:
		return 0, waiting{changed: h.changed(), expired: e.readBy.expired, until: *next}, nil
	case len(h.chunks) == 0:
		return 0, waiting{}, io.EOF
	}
	n := copy(p, h.chunks[0].data)
	if h.chunks[0].data = h.chunks[0].data[n:]; len(h.chunks[0].data) == 0 {
		h.chunks = h.chunks[1:]
	}
	if h.size >= maxInFlight {
		h.signal() // a writer may wait for room
	}
	h.size -= n
	return n, waiting{}, nil
}

// Write sends p. It waits only while too many bytes are in flight.
func (e *end) Write(p []byte) (int, error) {
	for {
		wait, err := e.tryWrite(p)
		if err != nil {
			return 0, e.fail("write", err)
		}
		if wait.changed == nil {
			return len(p), nil
		}
		if err := wait.block(e.done); err != nil {
			return 0, e.fail("write", err)
		}
	}
}

// tryWrite sends p, or returns what to wait for.
func (e *end) tryWrite(p []byte) (waiting, error) {
	e.link.net.mu.Lock()
	defer e.link.net.mu.Unlock()
	h := e.out
	switch {
	case e.closed:
		return waiting{}, net.ErrClosed
	case e.link.broken:
		return waiting{}, os.NewSyscallError("write", syscall.ECONNRESET)
	case e.writeBy.over:
		return waiting{}, os.ErrDeadlineExceeded
	case h.unread && !h.held() && !e.in.held():
		return waiting{}, os.NewSyscallError("write", syscall.EPIPE)
	case h.unread || len(p) == 0:
		return waiting{}, nil // the reader has closed, and the writer does not know yet
	case h.size >= maxInFlight:
		return waiting{changed: h.changed(), expired: e.writeBy.expired}, nil
	}
	h.chunks = append(h.chunks, chunk{data: append([]byte(nil), p...), at: h.arrival()})
	h.size += len(p)
	h.signal()
	return waiting{}, nil
}

// Close closes this end. The other end reads what was sent before, then io.EOF.
func (e *end) Close() error {
	e.link.net.mu.Lock()
	defer e.link.net.mu.Unlock()
	if e.closed {
		return e.fail("close", net.ErrClosed)
	}
	e.closed = true
	close(e.done)
	e.readBy.stop()
	e.writeBy.stop()
	if e.linger && !e.out.held() {
		e.link.reset()
		return nil
	}
	at := e.out.arrival()
	e.out.end, e.in.unread = &at, true
	e.in.chunks, e.in.size = nil, 0
	e.in.signal()
	e.out.signal()
	if e.link.closed++; e.link.closed == 2 {
		delete(e.link.net.links, e.link)
	}
	return nil
}

// SetLinger makes Close reset the connection when sec is 0, as [net.TCPConn.SetLinger] does; other values have no effect.
func (e *end) SetLinger(sec int) error {
	e.link.net.mu.Lock()
	defer e.link.net.mu.Unlock()
	e.linger = sec == 0
	return nil
}

// LocalAddr returns this end's address: the client's name or the listener's address.
func (e *end) LocalAddr() net.Addr { return e.local }

// RemoteAddr returns the other end's address.
func (e *end) RemoteAddr() net.Addr { return e.remote }

// SetDeadline sets when a Read or Write that waits gives up; zero means never.
func (e *end) SetDeadline(t time.Time) error {
	if err := e.SetReadDeadline(t); err != nil {
		return err
	}
	return e.SetWriteDeadline(t)
}

// SetReadDeadline sets when a Read that waits gives up; zero means never.
func (e *end) SetReadDeadline(t time.Time) error { return e.setDeadline(&e.readBy, t) }

// SetWriteDeadline sets when a Write that waits gives up; zero means never.
func (e *end) SetWriteDeadline(t time.Time) error { return e.setDeadline(&e.writeBy, t) }

func (e *end) setDeadline(d *deadline, t time.Time) error {
	e.link.net.mu.Lock()
	defer e.link.net.mu.Unlock()
	if e.closed {
		return e.fail("set deadline", net.ErrClosed)
	}
	d.set(t)
	return nil
}
