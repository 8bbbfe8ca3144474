package chaos_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
)

// Scenario 21: of two servers one accepts connections and is of no use otherwise. A member that loses its connection to the other
// tries this one first, and must not stay long.
func TestUselessServer(t *testing.T) {
	t.Parallel()
	const (
		rounds  = 3
		timeout = 9 * time.Second
	)
	for name, serve := range map[string]func(net.Conn){
		"never answers": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"resets in the middle of the reply": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1024))
			_, _ = c.Write([]byte{0, 0, 0, 37, 0, 0, 0, 0, 0, 0})
			_ = c.(*net.TCPConn).SetLinger(0)
		},
		"sends a frame that is too short": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1024))
			_, _ = c.Write([]byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
			_, _ = io.Copy(io.Discard, c)
		},
	} {
		t.Run(nameOfTest.Replace(name), func(t *testing.T) {
			t.Parallel()
			bad := listen(t, serve)
			good := proxy.To(t, sharedZooKeeper(t).Addrs()[:1])
			both := []string{bad.addr, good[0].Addr()}
			p := startProbe(t, both, session.Options{Timeout: timeout})
			id := incarnation(t, p.Session)
			f := newFleet(t, 21, options{timeout: timeout}) // nobody in the group is to suffer either
			f.hire("a", via(join(both...)))
			f.hire("b", via(join(both...)))
			f.settle()
			held := f.tokens()
			begun := members.Monotonic()
			var gaps []time.Duration
			for range rounds {
				f.until("the probe and both members have come back", func() bool { return good[0].Connections() == 3 })
				p.awaitAnswer(t, members.Monotonic())
				f.settle()
				before := bad.accepted.Load()
				at := members.Monotonic()
				f.faultAt("useless server", at)
				good.Cut()
				// Counted from here: on a busy machine the cut may come late, and a write before it be answered.
				p.awaitAnswer(t, members.Monotonic()+int64(50*time.Millisecond))
				gaps = append(gaps, p.gap(at))
				if bad.accepted.Load() == before {
					t.Error("the useless server was not tried")
				}
			}
			best(t, "gap", uselessBound, gaps)
			if now := incarnation(t, p.Session); now != id {
				t.Error("trust was lost")
			}
			f.settle()
			if n := f.unmoved("useless server", held, begun); n != 0 {
				t.Errorf("members have lost their trust %d times", n)
			}
			f.repeatedOnlyAfter(f.finish())
		})
	}
}

// listener is a server made for a test.
type listener struct {
	addr     string
	accepted atomic.Int64
}

// listen accepts connections until the test ends.
func listen(t *testing.T, serve func(net.Conn)) *listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	result := &listener{addr: l.Addr().String()}
	var mu sync.Mutex
	var conns []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			result.accepted.Add(1)
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			serving.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(fmt.Errorf("close: %w", err))
		}
		mu.Lock()
		for _, c := range conns {
			_ = c.Close() // it may be closed already
		}
		mu.Unlock()
		serving.Wait()
	})
	return result
}
