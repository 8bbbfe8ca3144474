package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// patience is how long a client waits for what must come at once.
const patience = 20 * time.Second

// encoder writes jute.
type encoder struct{ b []byte }

func (e *encoder) int32(v int32) *encoder {
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(v))
	return e
}

func (e *encoder) int64(v int64) *encoder {
	e.b = binary.BigEndian.AppendUint64(e.b, uint64(v))
	return e
}

func (e *encoder) bool(v bool) *encoder {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
	return e
}

func (e *encoder) bytes(v []byte) *encoder {
	if v == nil {
		return e.int32(-1)
	}
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
	return e
}

func (e *encoder) string(v string) *encoder { return e.bytes([]byte(v)) }

func (e *encoder) strings(list []string) *encoder {
	e.int32(int32(len(list)))
	for _, v := range list {
		e.string(v)
	}
	return e
}

func (e *encoder) acls(list []zktest.ACL) *encoder {
	e.int32(int32(len(list)))
	for _, a := range list {
		e.int32(a.Perms).string(a.Scheme).string(a.ID)
	}
	return e
}

// decoder reads jute; a short packet panics, which fails the test.
type decoder struct{ b []byte }

func (d *decoder) take(n int) []byte {
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) int32() int32   { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *decoder) int64() int64   { return int64(binary.BigEndian.Uint64(d.take(8))) }
func (d *decoder) bool() bool     { return d.take(1)[0] != 0 }
func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) bytes() []byte {
	n := d.int32()
	if n < 0 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) strings() []string {
	list := make([]string, max(0, d.int32()))
	for i := range list {
		list[i] = d.string()
	}
	return list
}

func (d *decoder) acls() []zktest.ACL {
	list := make([]zktest.ACL, max(0, d.int32()))
	for i := range list {
		list[i] = zktest.ACL{Perms: d.int32(), Scheme: d.string(), ID: d.string()}
	}
	return list
}

func (d *decoder) stat() zktest.Stat {
	return zktest.Stat{
		Czxid: d.int64(), Mzxid: d.int64(), Ctime: d.int64(), Mtime: d.int64(),
		Version: d.int32(), Cversion: d.int32(), Aversion: d.int32(), EphemeralOwner: d.int64(),
		DataLength: d.int32(), NumChildren: d.int32(), Pzxid: d.int64(),
	}
}

// hello is a connect request.
type hello struct {
	lastZxid int64
	timeout  time.Duration
	session  int64
	password []byte
	old      bool // without the read-only byte
}

// wire is a connection that speaks the protocol byte by byte. It is not safe for concurrent use.
type wire struct {
	nc       net.Conn
	xid      int32
	session  int64
	password []byte
	timeout  time.Duration
	events   []event // that came before the last reply
}

type event struct {
	kind int32
	path string
	zxid int64
}

// reply is an answer: its header and its body.
type reply struct {
	xid  int32
	zxid int64
	err  zktest.Error
	body decoder
}

// dial opens a connection without a handshake.
func (s *Server) dial() (*wire, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc, err := s.Dial(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Now().Add(10 * patience)); err != nil {
		return nil, err
	}
	return &wire{nc: nc}, nil
}

// connect opens a connection and a session. A session refused has id 0.
func (s *Server) connect(h hello) (*wire, error) {
	w, err := s.dial()
	if err != nil {
		return nil, err
	}
	if err := w.hello(h); err != nil {
		_ = w.nc.Close()
		return nil, err
	}
	return w, nil
}

func (w *wire) hello(h hello) error {
	var e encoder
	if h.password == nil {
		h.password = make([]byte, 16)
	}
	e.int32(0).int64(h.lastZxid).int32(int32(h.timeout.Milliseconds())).int64(h.session).bytes(h.password)
	if !h.old {
		e.bool(false)
	}
	if err := w.writeFrame(e.b); err != nil {
		return err
	}
	frame, err := w.readFrame()
	if err != nil {
		return err
	}
	d := decoder{frame}
	_ = d.int32()
	w.timeout = time.Duration(d.int32()) * time.Millisecond
	w.session, w.password = d.int64(), d.bytes()
	if left, want := len(d.b), map[bool]int{true: 0, false: 1}[h.old]; left != want {
		return fmt.Errorf("connect reply ends with %d bytes, want %d", left, want)
	}
	return nil
}

func (w *wire) writeFrame(b []byte) error {
	_, err := w.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func (w *wire) readFrame() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(w.nc, head[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(w.nc, frame)
	return frame, err
}

// send sends a request and returns its xid.
func (w *wire) send(op zktest.Op, body []byte) (int32, error) {
	w.xid++
	xid := w.xid
	if op == zktest.OpPing {
		xid = -2
	}
	var e encoder
	e.int32(xid).int32(int32(op))
	return xid, w.writeFrame(append(e.b, body...))
}

// receive reads up to the next reply; events that come before it are kept.
func (w *wire) receive() (reply, error) {
	w.events = nil
	for {
		frame, err := w.readFrame()
		if err != nil {
			return reply{}, err
		}
		d := decoder{frame}
		r := reply{xid: d.int32(), zxid: d.int64(), err: zktest.Error(d.int32())}
		if r.xid == -1 {
			ev := event{zxid: r.zxid, kind: d.int32()}
			if state := d.int32(); state != 3 {
				return reply{}, fmt.Errorf("event in state %d", state)
			}
			ev.path = d.string()
			w.events = append(w.events, ev)
			continue
		}
		r.body = d
		return r, nil
	}
}

// call sends a request and waits for its reply.
func (w *wire) call(op zktest.Op, body []byte) (reply, error) {
	xid, err := w.send(op, body)
	if err != nil {
		return reply{}, err
	}
	return w.receiveTo(xid)
}

// receiveTo reads up to the next reply, which must be the one to request xid.
func (w *wire) receiveTo(xid int32) (reply, error) {
	r, err := w.receive()
	if err == nil && r.xid != xid {
		err = fmt.Errorf("reply to %d instead of %d", r.xid, xid)
	}
	return r, err
}

// closed waits until the server has closed the connection, and tells whether it did so without another word.
func (w *wire) closed() bool {
	_, err := w.readFrame()
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}
