package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func be32(values ...int32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func connectBody(timeout int32, id int64, password int) []byte {
	b := be32(0, timeout)
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = append(b, be32(int32(password))...)
	return append(b, make([]byte, max(password, 0))...)
}

func TestParseConnectReply(t *testing.T) {
	for name, c := range map[string]struct {
		body    []byte
		want    connectReply
		expired bool
		bad     bool
	}{
		"granted":                {connectBody(6000, 7, 16), connectReply{6 * time.Second, 7}, false, false},
		"with a read-only byte":  {append(connectBody(6000, 7, 16), 1), connectReply{6 * time.Second, 7}, false, false},
		"expired":                {connectBody(0, 0, 16), connectReply{0, 0}, true, false},
		"no id":                  {connectBody(6000, 0, 16), connectReply{6 * time.Second, 0}, true, false},
		"no timeout":             {connectBody(0, 7, 16), connectReply{0, 7}, true, false},
		"negative timeout":       {connectBody(-1, 7, 16), connectReply{-time.Millisecond, 7}, true, false},
		"one millisecond":        {connectBody(1, 7, 16), connectReply{}, false, true},
		"longer than a day":      {connectBody(1<<31-1, 7, 16), connectReply{}, false, true},
		"no password":            {connectBody(6000, 7, 0), connectReply{}, false, true},
		"null password":          {connectBody(6000, 7, -1), connectReply{}, false, true},
		"password length":        {connectBody(6000, 7, -2), connectReply{}, false, true},
		"too short for password": {connectBody(6000, 7, 16)[:30], connectReply{}, false, true},
		"empty":                  {nil, connectReply{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseConnectReply(c.body)
			if got != c.want || errors.Is(err, errFrame) != c.bad || err == nil && got.expired() != c.expired {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestReadFrame(t *testing.T) {
	for name, c := range map[string]struct {
		in  []byte
		bad bool
	}{
		"smallest":       {append(be32(16), make([]byte, 16)...), false},
		"large":          {append(be32(300_000), make([]byte, 300_000)...), false},
		"length 0":       {be32(0), true},
		"length 8":       {append(be32(8), make([]byte, 8)...), true},
		"length -1":      {be32(-1), true},
		"length 2^31-1":  {be32(1<<31 - 1), true},
		"above maximum":  {be32(defaultMaxAnswer + 1), true},
		"cut off length": {be32(16)[:3], false},
		"cut off body":   {append(be32(16), make([]byte, 15)...), false},
		// A peer that announces much and sends little gets little memory.
		"announced only": {be32(defaultMaxAnswer), false},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := readFrame(bytes.NewReader(c.in), nil, headerSize, defaultMaxAnswer)
			runtime.ReadMemStats(&after)
			complete := len(c.in) >= 20 && len(c.in) == 4+int(binary.BigEndian.Uint32(c.in))
			switch {
			case complete != (err == nil) && !c.bad, c.bad != errors.Is(err, errFrame):
				t.Errorf("error %v", err)
			case err == nil && !bytes.Equal(got, c.in):
				t.Error("another frame came out")
			case err != nil && !c.bad && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
				t.Errorf("error %v", err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(4*len(c.in)+256<<10) {
				t.Errorf("%d bytes allocated for %d", grown, len(c.in))
			}
		})
	}
}

func TestCheckReply(t *testing.T) {
	stat := make([]byte, statSize)
	text := append(be32(3), "abc"...)
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	multi := func(op int32, done byte) []byte { return cat(be32(op), []byte{done}, be32(-1)) }
	for name, c := range map[string]struct {
		op   int32
		body []byte
		bad  bool
	}{
		"create":                        {opCreate, text, false},
		"create without":                {opCreate, nil, true},
		"create longer than it is":      {opCreate, append(be32(4), "abc"...), true},
		"create negative":               {opCreate, be32(-2), true},
		"sync":                          {opSync, text, false},
		"exists":                        {opExists, stat, false},
		"exists short":                  {opExists, stat[1:], true},
		"set":                           {opSetData, stat, false},
		"delete":                        {opDelete, nil, false},
		"get":                           {opGetData, cat(text, stat), false},
		"get null":                      {opGetData, cat(be32(-1), stat), false},
		"get huge":                      {opGetData, cat(be32(1<<31-1), stat), true},
		"get without stat":              {opGetData, text, true},
		"children":                      {opChildren2, cat(be32(2), text, text, stat), false},
		"children none":                 {opChildren2, cat(be32(0), stat), false},
		"children huge":                 {opChildren2, cat(be32(1<<31-1), text, stat), true},
		"children as many as bytes":     {opChildren2, cat(be32(75), text, stat), true},
		"children negative":             {opChildren2, cat(be32(-2), stat), true},
		"children null":                 {opChildren2, cat(be32(-1), stat), true}, // exhausts go-zookeeper's memory
		"children with a null name":     {opChildren2, cat(be32(1, -1), stat), true},
		"acl":                           {opGetACL, cat(be32(1), be32(31), text, text, stat), false},
		"acl huge":                      {opGetACL, cat(be32(1<<30), stat), true},
		"acl null":                      {opGetACL, cat(be32(-1), stat), true}, // exhausts go-zookeeper's memory
		"acl with a null scheme":        {opGetACL, cat(be32(1, 31, -1), text, stat), true},
		"create null":                   {opCreate, be32(-1), true},
		"multi":                         {opMulti, cat(multi(opCreate, 0), text, multi(opSetData, 0), stat, multi(opCheck, 0), multi(-1, 1)), false},
		"multi error":                   {opMulti, cat(multi(opError, 0), be32(-101), multi(-1, 1)), false},
		"multi empty":                   {opMulti, nil, true},
		"multi with no result":          {opMulti, multi(-1, 1), true},
		"multi cut in the header":       {opMulti, be32(opCheck), true}, // panics go-zookeeper
		"multi cut after the flag":      {opMulti, cat(be32(opCheck), []byte{0}), true},
		"multi without its end":         {opMulti, multi(opCheck, 0), true},
		"multi with an unknown element": {opMulti, cat(multi(99, 0), multi(-1, 1)), true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkReply(c.op, c.body); errors.Is(err, errFrame) != c.bad {
				t.Errorf("error %v", err)
			}
		})
	}
	noerr.Want(t, checkEvent(cat(be32(1, 3), text)))
	if err := checkEvent(be32(1, 3)); !errors.Is(err, errFrame) {
		t.Errorf("event without a path: %v", err)
	}
}

// zkDecoder reads a reply as go-zookeeper 1.0.4 does (decodePacketValue in structs.go), and fails where that would panic, take
// memory by a length that is only claimed, or give up.
type zkDecoder struct {
	t    *testing.T
	op   int32
	rest []byte
}

func (z *zkDecoder) take(n int) []byte {
	if n < 0 || n > len(z.rest) {
		z.t.Fatalf("operation %d: go-zookeeper reads %d bytes of %d", z.op, n, len(z.rest))
	}
	b := z.rest[:n]
	z.rest = z.rest[n:]
	return b
}

func (z *zkDecoder) int32() int32 { return int32(binary.BigEndian.Uint32(z.take(4))) }
func (z *zkDecoder) str()         { z.take(int(uint32(z.int32()))) }
func (z *zkDecoder) stat()        { z.take(statSize) }

func (z *zkDecoder) buffer() {
	if n := int(z.int32()); n >= 0 {
		z.take(n)
	}
}

func (z *zkDecoder) vector(element func()) {
	n := int(uint32(z.int32()))
	if n > len(z.rest) {
		z.t.Fatalf("operation %d: go-zookeeper makes a vector of %d", z.op, n)
	}
	for range n {
		element()
	}
}

func (z *zkDecoder) reply() {
	switch z.op {
	case opCreate, opSync:
		z.str()
	case opExists, opSetData:
		z.stat()
	case opGetData:
		z.buffer()
		z.stat()
	case opGetACL:
		z.vector(func() { z.int32(); z.str(); z.str() })
		z.stat()
	case opChildren2:
		z.vector(z.str)
		z.stat()
	case opMulti:
		z.multi()
	}
}

func (z *zkDecoder) multi() {
	for {
		op, done := z.int32(), z.take(1)[0] != 0
		z.int32()
		if done {
			return
		}
		switch op {
		case opError:
			z.int32()
		case opCreate:
			z.str()
		case opSetData:
			z.stat()
		case opCheck, opDelete:
		default:
			z.t.Fatalf("go-zookeeper does not know operation %d", op)
		}
	}
}

// scripted is a connection from which bytes are read.
type scripted struct {
	net.Conn
	in     io.Reader
	closed bool
}

func (c *scripted) Read(b []byte) (int, error) { return c.in.Read(b) }
func (*scripted) Write(b []byte) (int, error)  { return len(b), nil }
func (*scripted) SetDeadline(time.Time) error  { return nil }
func (c *scripted) Close() error               { c.closed = true; return nil }
func (*scripted) RemoteAddr() net.Addr         { return nil }
func newSession(tb testing.TB, auth []Auth) *Session {
	tb.Helper()
	s, err := New([]string{"zk"}, Options{Auth: auth})
	noerr.Must(tb, err)
	return s
}

// FuzzConnectReply plays a hostile server from the first byte on: after the connect request all that it says is read as
// go-zookeeper would read it. Nothing may panic or take memory by lengths that are only claimed; what is handed on must be what
// go-zookeeper can decode; the first frame that is not ends the connection.
func FuzzConnectReply(f *testing.F) {
	good := append(be32(36), connectBody(6000, 7, 16)...)
	f.Add(good, int64(0), false)
	f.Add(append(append(be32(37), connectBody(6000, 7, 16)...), 1), int64(7), false)
	f.Add(append(be32(36), connectBody(0, 0, 16)...), int64(7), false)
	f.Add(append(be32(36), connectBody(6000, 8, 16)...), int64(7), false)
	f.Add(append(be32(36), connectBody(-5, 7, 16)...), int64(0), false)
	f.Add(append(be32(36), connectBody(1<<31-1, 7, 16)...), int64(0), false)
	f.Add(append(be32(36, 0, 6000, 0, 7, 1<<30), make([]byte, 16)...), int64(0), false)
	f.Add(be32(0), int64(0), false)
	f.Add(be32(8, 0, 0), int64(0), false)
	f.Add(be32(-1), int64(0), false)
	f.Add(be32(1<<31-1), int64(0), false)
	f.Add(slices.Concat(good, be32(16, xidAuth, 0, 0, 0), be32(16, xidPing, 0, 0, 0)), int64(0), true)
	f.Add(slices.Concat(good, be32(16, xidAuth, 0, 0, -115)), int64(0), true)
	f.Add(slices.Concat(good, be32(28, xidEvent, 0, 0, 0, 1, 3, 0), be32(16, 1, 0, 1, 0)), int64(0), false)
	anonymous, known := newSession(f, nil), newSession(f, []Auth{{Scheme: "digest", Credential: []byte("u:p")}})
	f.Fuzz(func(t *testing.T, in []byte, id int64, authenticates bool) {
		s := anonymous
		if authenticates {
			s = known
		}
		c := &client{room: incredible, s: s, opts: s.opts, log: s.log, link: link{up: make(chan struct{})}}
		c.ctx = t.Context()
		c.hosts = newHosts(c, s.servers)
		c.trust = c.newTrust(10 * time.Second)
		if c.id.Store(id); id != 0 {
			c.links = 1 // requests were sent in that session
		}
		raw := &scripted{in: bytes.NewReader(in)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n := newNetConn(c, raw, "evil:2181", time.Second)
		noerr.Last(t)(n.Write(make([]byte, connectRequestSize)))
		var err error
		for first := true; err == nil; first = false {
			length := make([]byte, 4)
			if _, err = io.ReadFull(n, length); err != nil {
				break
			}
			size := binary.BigEndian.Uint32(length)
			if size > defaultMaxAnswer || first && size > maxConnectReply || !first && size < headerSize {
				t.Fatalf("a frame of %d bytes is handed on", size)
			}
			body := make([]byte, size)
			if _, err = io.ReadFull(n, body); err != nil {
				t.Fatalf("less than a frame is handed on: %v", err)
			}
			if first {
				reply, bad := parseConnectReply(body)
				if bad != nil || reply.expired() != c.expired || !reply.expired() && (id != 0 && reply.id != id || c.id.Load() != reply.id) {
					t.Fatalf("connect reply %+v handed on, %v, expired %t", reply, bad, c.expired)
				}
			}
		}
		runtime.ReadMemStats(&after)
		if !raw.closed {
			t.Errorf("not closed after %v", err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(64*len(in)+1<<20) {
			t.Errorf("%d bytes allocated for %d", grown, len(in))
		}
	})
}

// FuzzFrames feeds what a hostile server may send to all that parses it: nothing may panic or allocate by lengths that are only
// claimed, and what is accepted as a reply must be decodable.
func FuzzFrames(f *testing.F) {
	f.Add(append(be32(37), connectBody(6000, 7, 16)...))
	f.Add(append(be32(8), make([]byte, 8)...))
	f.Add(be32(-1))
	f.Add(append(be32(25, 1, 0, 1, 0, opCheck), 0))
	f.Add(append(be32(24, 1, 0, 1, 0, 1<<31-1), "abcd"...))
	f.Add(append(be32(16+4+statSize, 1, 0, 1, 0, -1), make([]byte, statSize)...))
	f.Add(append(be32(16+8+statSize, 1, 0, 1, 0, 1, -1), make([]byte, statSize)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		frame, err := readFrame(bytes.NewReader(in), nil, minConnectReply, maxConnectReply)
		if err == nil {
			if reply, err := parseConnectReply(frame[4:]); err == nil && !reply.expired() && reply.timeout < minGranted {
				t.Errorf("accepted a timeout of %v", reply.timeout)
			}
		}
		frame, err = readFrame(bytes.NewReader(in), nil, headerSize, defaultMaxAnswer)
		if err == nil {
			body := frame[4+headerSize:]
			if checkEvent(body) == nil {
				z := &zkDecoder{t, xidEvent, body}
				z.int32()
				z.int32()
				z.str()
			}
			for _, op := range []int32{opCreate, opDelete, opExists, opGetData, opSetData, opGetACL, opSync, opChildren2, opCheck, opMulti} {
				if checkReply(op, body) == nil {
					(&zkDecoder{t, op, body}).reply()
				}
			}
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(16*len(in)+1<<20) {
			t.Errorf("%d bytes allocated for %d", grown, len(in))
		}
	})
}

func TestAppendAuth(t *testing.T) {
	frame := appendAuth(nil, Auth{Scheme: "digest", Credential: []byte("u:p")})
	p := parser{rest: frame}
	length, xid, op, kind := p.int32(), p.int32(), p.int32(), p.int32()
	scheme, credential := p.bytes(), p.bytes()
	if int(length) != len(frame)-4 || xid != xidAuth || op != opAuth || kind != 0 || string(scheme) != "digest" ||
		string(credential) != "u:p" || len(p.rest) != 0 || p.failed {
		t.Errorf("% x", frame)
	}
}

// go-zookeeper gives the codes that it has no error for in its error's text only. This is where we notice a change.
func TestServerErrorText(t *testing.T) {
	if code, ok := unknownCode(errors.New("unknown error: -124")); !ok || code != -124 {
		t.Errorf("%d, %v", code, ok)
	}
	if _, ok := unknownCode(errors.New("zk: unknown error")); ok {
		t.Error("found a code where none is")
	}
	if err := codeError(-77); !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "-77") {
		t.Error(err)
	}
}
