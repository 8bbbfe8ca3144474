package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// The operations of ZooKeeper's protocol that tests ask for.
const (
	OpCreate       int32 = 1
	OpDelete       int32 = 2
	OpSetData      int32 = 5
	OpSync         int32 = 9
	OpCheck        int32 = 13
	OpMulti        int32 = 14
	opCloseSession int32 = -11
)

const (
	maxFrame     = 16 << 20 // what claims to be larger is something else, a four-letter command
	passwordSize = 16
)

// Request is one that passes a link.
type Request struct {
	Op    int32
	First int32  // of a multi: the first of its operations
	Body  []byte // all after xid and Op
}

// loss waits for the request whose reply is to be lost.
type loss struct {
	match func(Request) bool
	taken atomic.Bool   // it has found its request
	done  chan struct{} // closed when the reply was lost
}

// LoseReply hands the next request that match likes on to the server, and when the reply comes, when it has been executed, that
// is, resets the connection instead of handing it on. The channel is closed then. Heal takes it back. It is for links to
// ZooKeeper, made by To.
func (l *Link) LoseReply(match func(Request) bool) <-chan struct{} {
	return Links{l}.LoseReply(match)
}

// matching returns the loss that waits for such a request.
func (l *Link) matching(r Request) *loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.losses {
		if !one.taken.Load() && one.match(r) && one.taken.CompareAndSwap(false, true) {
			return one
		}
	}
	return nil
}

// frame looks at the nth frame in a direction; false when the connection ended with it.
func (c *conn) frame(d Direction, n int, frame []byte) bool {
	const header = 4 + 4 + 4
	switch {
	case n == 0 && d == ToClient:
		c.link.connected(frame)
	case n == 0 || len(frame) < header:
	case d == ToServer:
		r := Request{Op: int32(binary.BigEndian.Uint32(frame[8:])), Body: frame[header:]}
		if r.Op == OpMulti && len(r.Body) >= 4 {
			r.First = int32(binary.BigEndian.Uint32(r.Body))
		}
		if one := c.link.matching(r); one != nil {
			c.mu.Lock()
			c.lost[int32(binary.BigEndian.Uint32(frame[4:]))] = one
			c.mu.Unlock()
		}
	default:
		c.mu.Lock()
		one := c.lost[int32(binary.BigEndian.Uint32(frame[4:]))]
		c.mu.Unlock()
		if one != nil {
			c.reset()
			close(one.done)
			return false
		}
	}
	return true
}

// Session is what it takes to be a ZooKeeper session's client.
type Session struct {
	ID       int64
	Password []byte
}

// connected notes the session of a connect reply.
func (l *Link) connected(frame []byte) {
	const id, size, password = 4 + 4 + 4, 4 + 4 + 4 + 8, 4 + 4 + 4 + 8 + 4
	if len(frame) < password+passwordSize || binary.BigEndian.Uint32(frame[size:]) != passwordSize {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = Session{
		ID:       int64(binary.BigEndian.Uint64(frame[id:])),
		Password: append([]byte(nil), frame[password:password+passwordSize]...),
	}
}

// Session returns the session for which a connect reply passed last; ID 0 when none has, or an expired one's.
func (l *Link) Session() Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// closeTries is how often Close tries while the server closes its connection, or is silent, instead of answering. It does that
// after it has closed the session, and when the client itself comes back in between.
const closeTries = 10

// Close ends the session at a server, behind the back of its client: who knows id and password is the client.
func (s Session) Close(ctx context.Context, addr string) error {
	for try := range closeTries {
		switch err := s.close(ctx, addr); {
		case err == nil:
			return nil
		case errors.Is(err, errNotOurs) && try > 0:
			return nil // it is gone
		case !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("close session: %w", err)
		}
	}
	return fmt.Errorf("close session: no answer in %d tries", closeTries)
}

var errNotOurs = errors.New("the server does not take us for its client")

func (s Session) close(ctx context.Context, addr string) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the answer is what matters
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	var request []byte
	request = binary.BigEndian.AppendUint32(request, 0)      // protocol
	request = binary.BigEndian.AppendUint64(request, 0)      // zxid seen
	request = binary.BigEndian.AppendUint32(request, 10_000) // timeout
	request = binary.BigEndian.AppendUint64(request, uint64(s.ID))
	request = binary.BigEndian.AppendUint32(request, uint32(len(s.Password)))
	request = append(request, s.Password...)
	answer, err := exchange(conn, request)
	if err != nil {
		return err
	}
	if len(answer) < 16 || int64(binary.BigEndian.Uint64(answer[8:])) != s.ID {
		return errNotOurs
	}
	request = binary.BigEndian.AppendUint32(nil, 1) // xid
	closing := opCloseSession
	request = binary.BigEndian.AppendUint32(request, uint32(closing))
	_, err = exchange(conn, request)
	return err
}

// exchange sends a frame and receives one.
func exchange(conn io.ReadWriter, request []byte) ([]byte, error) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(request)))
	if _, err := conn.Write(append(frame, request...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, min(binary.BigEndian.Uint32(size[:]), maxFrame))
	_, err := io.ReadFull(conn, answer)
	return answer, err
}
