package proxy

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection through a link.
type conn struct {
	link   *Link
	client net.Conn
	done   chan struct{} // closed when the connection is over
	once   sync.Once     // closes done
	half   atomic.Bool   // the client's end was reset, the server's stays

	mu     sync.Mutex
	server net.Conn        // nil before it is reached
	lost   map[int32]*loss // by xid, requests whose replies are to be lost
}

func newConn(l *Link, client net.Conn) *conn {
	return &conn{link: l, client: client, done: make(chan struct{}), lost: make(map[int32]*loss)}
}

// run leads the connection until it is over.
func (c *conn) run() {
	defer c.link.forget(c)
	defer c.reset()
	if !c.link.await(c.done, func(f faults) bool { return !f.silent && f.held&ToServer == 0 }) {
		return
	}
	server, err := c.dial()
	if err != nil {
		return
	}
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	select {
	case <-c.done: // in the meantime
		abort(server)
		return
	default:
	}
	var wg sync.WaitGroup
	for _, p := range []*pipe{
		{c: c, link: c.link, direction: ToServer, from: c.client, to: server, wake: make(chan struct{}, 1)},
		{c: c, link: c.link, direction: ToClient, from: server, to: c.client, wake: make(chan struct{}, 1)},
	} {
		wg.Go(p.read)
		wg.Go(p.write)
	}
	wg.Wait()
}

// dial reaches the server, with some patience when it does not listen yet.
func (c *conn) dial() (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	for begin := time.Now(); ; {
		raw, err := dialer.DialContext(c.link.ctx, "tcp", c.link.target)
		if err == nil {
			return raw, nil
		}
		if time.Since(begin) > c.link.patience {
			return nil, err
		}
		select {
		case <-time.After(dialPause):
		case <-c.done:
			return nil, err
		}
	}
}

// reset ends the connection at both ends.
func (c *conn) reset() {
	c.once.Do(func() { close(c.done) })
	abort(c.client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		abort(c.server)
	}
}

// resetClient ends the connection at the client's end.
func (c *conn) resetClient() {
	c.half.Store(true)
	abort(c.client)
}

// abort closes a socket so that its peer sees a reset.
func abort(socket net.Conn) {
	if tcp, ok := socket.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closed already, or the next line does what can be done
	}
	_ = socket.Close()
}

// finish says that nothing more will be sent.
func finish(socket net.Conn) error {
	if tcp, ok := socket.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return socket.Close()
}

// pipe is one direction of a connection.
type pipe struct {
	c         *conn
	link      *Link
	direction Direction
	from, to  net.Conn

	mu    sync.Mutex
	queue []piece
	wake  chan struct{}
	free  time.Time // when the line is free for the next piece
}

// piece is a part of what is sent, or its end.
type piece struct {
	data []byte
	end  error // io.EOF for an orderly one
	due  time.Time
}

// read takes in all that is sent, whatever becomes of it.
func (p *pipe) read() {
	next := raw(p.from)
	if p.link.frames {
		next = framed(p.from)
	}
	for n := 0; ; n++ {
		data, err := next()
		if p.c.half.Load() && p.direction == ToServer {
			return // the server is not to know
		}
		if len(data) > 0 {
			if n == 0 && p.direction == ToServer && p.link.first != nil {
				data = p.link.first(data)
			}
			if p.link.frames && !p.c.frame(p.direction, n, data) {
				return
			}
			p.push(piece{data: data})
		}
		if err != nil {
			p.push(piece{end: err})
			return
		}
	}
}

func (p *pipe) push(next piece) {
	speed := p.link.speed(p.direction)
	next.due = time.Now().Add(speed.Latency)
	if speed.Jitter > 0 {
		next.due = next.due.Add(rand.N(speed.Jitter))
	}
	if next.due.Before(p.free) {
		next.due = p.free
	}
	if speed.Rate > 0 {
		next.due = next.due.Add(time.Duration(len(next.data)) * time.Second / time.Duration(speed.Rate))
	}
	p.free = next.due
	p.mu.Lock()
	p.queue = append(p.queue, next)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// write hands on what was read, in its time.
func (p *pipe) write() {
	for {
		next, ok := p.pop()
		if !ok || !p.link.passes(p.direction, p.c.done) {
			return
		}
		if next.end != nil {
			if !errors.Is(next.end, io.EOF) || finish(p.to) != nil {
				p.c.reset()
			}
			return
		}
		if _, err := p.to.Write(next.data); err != nil && !p.c.half.Load() {
			p.c.reset()
			return
		}
	}
}

// pop waits for the next piece and for its time.
func (p *pipe) pop() (piece, bool) {
	for {
		p.mu.Lock()
		var next piece
		some := len(p.queue) > 0
		if some {
			next, p.queue = p.queue[0], p.queue[1:]
		}
		p.mu.Unlock()
		if !some {
			select {
			case <-p.wake:
				continue
			case <-p.c.done:
				return piece{}, false
			}
		}
		if wait := time.Until(next.due); wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-p.c.done:
				return piece{}, false
			}
		}
		return next, true
	}
}

// raw reads what is there.
func raw(from io.Reader) func() ([]byte, error) {
	buf := make([]byte, 64<<10)
	return func() ([]byte, error) {
		n, err := from.Read(buf)
		return append([]byte(nil), buf[:n]...), err
	}
}

// framed reads frame by frame, and what has no frames as it is.
func framed(from io.Reader) func() ([]byte, error) {
	r := bufio.NewReader(from)
	plain := raw(r)
	anything := false
	return func() ([]byte, error) {
		if anything {
			return plain()
		}
		head, err := r.Peek(4)
		if err != nil {
			return nil, err
		}
		size := int(int32(uint32(head[0])<<24 | uint32(head[1])<<16 | uint32(head[2])<<8 | uint32(head[3])))
		if size < 0 || size > maxFrame {
			anything = true
			return plain()
		}
		frame := make([]byte, 4+size)
		n, err := io.ReadFull(r, frame)
		return frame[:n], err
	}
}
