package session_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func be(values ...int32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// frame puts the length in front.
func frame(parts ...[]byte) []byte {
	var body []byte
	for _, p := range parts {
		body = append(body, p...)
	}
	return append(be(int32(len(body))), body...)
}

// grant is a connect reply.
func grant(timeout, password int32) []byte {
	return frame(be(0, timeout), be(0, 77), be(password), make([]byte, 16))
}

// hostile serves connections: it answers the connect request with hello, and every later request but pings with what
// answer makes of its xid and operation.
func hostile(l net.Listener, hello []byte, answer func(xid, op int32) []byte) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for first := true; ; first = false {
				head := make([]byte, 4)
				if _, err := io.ReadFull(conn, head); err != nil {
					return
				}
				body := make([]byte, binary.BigEndian.Uint32(head))
				if _, err := io.ReadFull(conn, body); err != nil {
					return
				}
				reply := hello
				if !first {
					reply = answer(int32(binary.BigEndian.Uint32(body)), int32(binary.BigEndian.Uint32(body[4:])))
				}
				if _, err := conn.Write(reply); err != nil {
					return
				}
			}
		}()
	}
}

// What a broken or hostile server sends drops the connection; it neither panics nor takes memory.
func TestHostileServer(t *testing.T) {
	good := grant(6000, 16)
	always := func(b []byte) func(int32, int32) []byte { return func(int32, int32) []byte { return b } }
	reply := func(body ...byte) func(int32, int32) []byte {
		return func(xid, _ int32) []byte { return frame(be(xid, 0, 1, 0), body) }
	}
	for name, c := range map[string]struct {
		hello  []byte
		answer func(xid, op int32) []byte
		frames bool // bad frames are counted; else the connection is just of no use
	}{
		"length 0":                    {good, always(be(0)), true},
		"length 8":                    {good, always(append(be(8), make([]byte, 8)...)), true}, // panics go-zookeeper
		"short ping":                  {good, always(frame(be(-2, 0))), true},
		"length -1":                   {good, always(be(-1)), true},
		"length 2^31-1":               {good, always(be(1<<31 - 1)), true},
		"unknown xid":                 {good, always(frame(be(4711, 0, 1, 0))), true},
		"negative xid":                {good, always(frame(be(-9, 0, 1, 0))), true},
		"event without a body":        {good, always(frame(be(-1, 0, 0, 0))), true},
		"multi without its end":       {good, reply(0, 0, 0, 13), true}, // panics go-zookeeper
		"half a multi":                {good, reply(0, 0, 0, 13, 0, 0, 0, 0, 0), true},
		"multi of something else":     {good, reply(0, 0, 0, 99, 0, 0, 0, 0, 0), true},
		"announced, never sent":       {good, always(be(16<<20, 0)), false},
		"handshake: length 0":         {be(0), nil, true},
		"handshake: length -1":        {be(-1), nil, true},
		"handshake: length 1000":      {be(1000), nil, true},
		"handshake: password huge":    {grant(6000, 1<<30), nil, true},
		"handshake: timeout 1 ms":     {grant(1, 16), nil, true},
		"handshake: closes":           {nil, nil, false},
		"handshake: expired at once":  {frame(be(0, 0), be(0, 0), be(16), make([]byte, 16)), nil, false},
		"handshake: negative timeout": {grant(-5, 16), nil, false}, // counts as expired
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				l, err := w.net.Listen("evil:2181")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go hostile(l, c.hello, c.answer)
				s, err := session.New([]string{"evil:2181"}, session.Options{Timeout: timeout, Dial: w.net.Client("a").Dial})
				if err != nil {
					t.Fatal(err)
				}
				m := run(t, s, nil)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				time.Sleep(10 * time.Second)
				runtime.ReadMemStats(&after)
				if m.Current() != nil {
					t.Error("trusted")
				}
				if got := m.Stats().BadFrames; (got > 0) != c.frames {
					t.Errorf("%d bad frames", got)
				}
				// go-zookeeper takes 1.5 MiB for each connection, and we try again about once a second.
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 400<<20 {
					t.Errorf("%d MiB allocated", grown>>20)
				}
				// Expired at once is a new client each time; that must not become a busy loop either.
				if n := m.Stats().Expirations; n > 40 {
					t.Errorf("%d sessions in 10 s", n)
				}
			})
		})
	}
}

// Replies to reads, with lengths that are only claimed.
func TestHostileReplies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		evil := func(xid, op int32) []byte {
			switch op {
			case 14: // multi: the proof, answered well
				return frame(be(xid, 0, 1, 0), be(13), []byte{0}, be(0, -1), []byte{1}, be(-1))
			case 4, 12: // data, children
				return frame(be(xid, 0, 1, 0), be(1<<31-1), make([]byte, 100))
			default:
				return frame(be(xid, 0, 1, 0))
			}
		}
		l, err := w.net.Listen("evil:2181")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go hostile(l, grant(6000, 16), evil)
		s, err := session.New([]string{"evil:2181"}, session.Options{Timeout: timeout, Dial: w.net.Client("a").Dial})
		if err != nil {
			t.Fatal(err)
		}
		m := run(t, s, nil)
		inc := m.incarnation()
		for _, read := range []func(context.Context) error{
			func(ctx context.Context) error { _, _, err := inc.Get(ctx, "/"); return err },
			func(ctx context.Context) error { _, _, err := inc.Children(ctx, "/"); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("read: %v", err)
			}
			cancel()
		}
		if m.Stats().BadFrames == 0 {
			t.Error("no bad frame")
		}
	})
}

// A client that hangs where nothing can reach it is replaced, and counted while it lives on.
func TestWedgedClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		link, dials := w.net.Client("a"), atomic.Int32{}
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{
			Timeout: timeout,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) == 2 {
					<-release // a dialer that does not know of contexts
				}
				return link.Dial(ctx, network, address)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m := run(t, s, link)
		inc := m.incarnation()
		link.Cut()
		start := time.Now()
		<-inc.Context().Done()
		again := m.incarnation()
		if took := time.Since(start); took > 17*time.Second {
			t.Errorf("replaced after %v", took)
		}
		time.Sleep(timeout)
		synctest.Wait()
		if got := m.Stats(); got.Replaced != 1 || got.Abandoned != 1 || !again.Trusted() {
			t.Errorf("%+v", got)
		}
		start = time.Now()
		if err := m.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		close(release)
	})
}
