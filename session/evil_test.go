package session_test

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
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

// evil is a hostile server. It answers the connect request with hello, and every later request with what answer makes of its xid
// and operation. nil is silence.
type evil struct {
	hello    []byte
	answer   func(xid, op int32) []byte
	tail     []byte // sent after each answer
	hangUp   bool   // after what it said first
	auth     bool   // it is shown credentials, and that is its first request
	drip     bool   // hello comes byte by byte, four a second
	accepted atomic.Int32
	done     chan struct{}
}

// serve serves l.
func (e *evil) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		e.accepted.Add(1)
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
				reply := e.hello
				if !first {
					reply = e.answer(int32(binary.BigEndian.Uint32(body)), int32(binary.BigEndian.Uint32(body[4:])))
				}
				if first && e.drip {
					for len(reply) > 1 {
						if _, err := conn.Write(reply[:1]); err != nil {
							return
						}
						reply = reply[1:]
						select {
						case <-time.After(time.Second / 4):
						case <-e.done:
							return
						}
					}
				}
				if _, err := conn.Write(reply); err != nil {
					return
				}
				for tail := range slices.Chunk(e.tail, 64<<10) {
					if first {
						break
					}
					if _, err := conn.Write(tail); err != nil {
						return
					}
				}
				if e.hangUp && (first == (e.answer == nil)) {
					return
				}
			}
		}()
	}
}

// against runs a session that has nobody to connect to but e.
func (w *world) against(e *evil) *member {
	w.t.Helper()
	l, err := w.net.Listen("evil:2181")
	noerr.Must(w.t, err)
	e.done = make(chan struct{})
	w.t.Cleanup(func() { l.Close(); close(e.done) })
	go e.serve(l)
	opts := session.Options{Timeout: timeout, Dial: w.net.Client("a").Dial}
	if e.auth {
		opts.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("u:p")}}
	}
	s, err := session.New([]string{"evil:2181"}, opts)
	noerr.Must(w.t, err)
	return run(w.t, s, nil)
}

// proven is the answer to a proof of life.
func proven(xid int32) []byte {
	return frame(be(xid, 0, 1, 0), be(13), []byte{0}, be(0, -1), []byte{1}, be(-1))
}

const (
	ownBuffers = 5 << 19 // what go-zookeeper takes for a client and its first connection: 1 MiB and 1.5 MiB
	underWay   = 4 << 20 // what the network may take of one that is never read
	noMoreThan = 2 << 20 // no allocation may be larger
)

// largest returns a function that returns the size of the largest allocation since, as far as it is above [noMoreThan].
func largest(t *testing.T) func() int64 {
	t.Helper()
	type key struct {
		stack [32]uintptr
		size  int64
	}
	read := func() map[key]int64 {
		runtime.GC()
		runtime.GC() // the profile is as of the last but one
		records := make([]runtime.MemProfileRecord, 1000)
		n, ok := runtime.MemProfile(records, true)
		for !ok {
			records = make([]runtime.MemProfileRecord, n+1000)
			n, ok = runtime.MemProfile(records, true)
		}
		found := map[key]int64{}
		for _, r := range records[:n] {
			if size := r.AllocBytes / max(r.AllocObjects, 1); size > noMoreThan {
				found[key{r.Stack0, size}] += r.AllocObjects
			}
		}
		return found
	}
	before := read()
	return func() (most int64) {
		for k, n := range read() {
			if n > before[k] {
				most = max(most, k.size)
			}
		}
		return most
	}
}

// An allocation that is too large is noticed.
func TestLargest(t *testing.T) {
	size := largest(t)
	buf := make([]byte, noMoreThan+1<<20)
	runtime.KeepAlive(buf)
	if n := size(); n < noMoreThan {
		t.Errorf("found %d", n)
	}
}
