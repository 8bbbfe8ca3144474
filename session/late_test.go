package session_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// phases is at how many moments between two of the server's ticks the tests below begin: the server expires sessions at its ticks
// alone, so how long one outlives its timeout depends on that.
const phases = 12

// alive reports whether the server still has a session.
func (w *world) alive(id int64) bool {
	for _, s := range w.srv.Sessions() {
		if s.ID == id {
			return true
		}
	}
	return false
}

// outlives waits until the server has ended the incarnation's session, and returns how long before that its trust ended. It is
// negative when the session was trusted after its end.
func (w *world) outlives(inc *session.Incarnation) time.Duration {
	w.t.Helper()
	for w.alive(inc.SessionID()) {
		time.Sleep(time.Millisecond)
	}
	expired := time.Now()
	if inc.Trusted() {
		w.t.Errorf("trusted for %v after the server has ended the session", time.Until(inc.TrustEnd()))
	}
	<-inc.Context().Done()
	return expired.Sub(inc.TrustEnd())
}

// lateConn hands on late what comes in.
type lateConn struct {
	net.Conn
	arrived chan arrival
	rest    []byte
}

type arrival struct {
	data []byte
	err  error
	due  time.Time
}

// late makes the answers on all connections come late by what delay holds when they arrive; requests are on time.
func late(dial func(context.Context, string, string) (net.Conn, error), delay *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &lateConn{Conn: conn, arrived: make(chan arrival, 1024)}
		go func() {
			for err := error(nil); err == nil; {
				a := arrival{data: make([]byte, 4096)}
				var n int
				n, err = conn.Read(a.data)
				a.data, a.err, a.due = a.data[:n], err, time.Now().Add(time.Duration(delay.Load()))
				c.arrived <- a
			}
		}()
		return c, nil
	}
}

func (c *lateConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		a := <-c.arrived
		if a.err != nil {
			return 0, a.err
		}
		time.Sleep(time.Until(a.due))
		c.rest = a.data
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// An answer says that the session was alive when its proof was sent, not when the answer came. All answers take almost as long as
// a connection is kept without any. The leader never hears of the last proof, because the follower that answers it dies before it
// reports, and nothing else reaches the servers.
func TestTrustCountsFromTheSendingOfAProof(t *testing.T) {
	const delay = timeout/3 - time.Millisecond // after T/3 the connection would be dropped, T/2 after the proof before
	worst := time.Hour
	for phase := range phases {
		bubble(t, func(t *testing.T, w *world) {
			time.Sleep(time.Duration(phase) * tick / phases)
			var answers atomic.Int64
			m := w.start("a", func(o *session.Options) { o.Dial = late(o.Dial, &answers) })
			inc := m.incarnation()
			answers.Store(int64(delay))
			time.Sleep(2 * timeout)
			proofs, sent := 0, make(chan struct{})
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op == zktest.OpMulti {
					if proofs++; proofs == 2 {
						m.link.BlackHole(zktest.ToServer)
						close(sent)
					}
				}
				return zktest.Action{NoTouch: proofs > 0 && (r.Op != zktest.OpMulti || proofs > 1)}
			})
			<-sent
			time.Sleep(delay)
			synctest.Wait()
			if got := m.Stats(); got.State != "connected" || got.Reconnects != 0 || !inc.Trusted() {
				t.Fatalf("the answers were late and something else happened: %+v", got)
			}
			worst = min(worst, w.outlives(inc))
		})
	}
	t.Logf("smallest margin between the end of trust and of the session: %v at T = %v", worst, timeout)
	if worst < timeout/6 {
		t.Error("margin too small")
	}
}

// The answer to a connect request says as little about the time at which it came. It takes long, after servers that did not
// answer at all have made the client patient. The first proof is then answered at once, but the leader does not hear of it.
func TestTrustCountsFromTheSendingOfAConnectRequest(t *testing.T) {
	const delay = timeout * 11 / 20
	worst := time.Hour
	for phase := range phases {
		bubble(t, func(t *testing.T, w *world) {
			time.Sleep(time.Duration(phase) * tick / phases)
			w.srv.SilentHandshakes(true)
			m := w.start("a", nil)
			time.Sleep(5 * timeout)
			connects, sent := 0, make(chan time.Time, 1)
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op == zktest.OpConnect {
					if connects++; connects == 1 {
						m.link.BlackHole(zktest.ToClient)
						sent <- time.Now()
					}
				}
				return zktest.Action{NoTouch: r.Op != zktest.OpConnect}
			})
			w.srv.SilentHandshakes(false)
			request := <-sent
			time.Sleep(delay)
			m.link.Heal()
			inc := m.incarnation()
			m.link.BlackHole(zktest.Both)
			if took := time.Since(request); took != delay || connects != 1 {
				t.Fatalf("trusted %v after the connect request, %d requests; want %v, 1", took, connects, delay)
			}
			worst = min(worst, w.outlives(inc))
		})
	}
	t.Logf("smallest margin between the end of trust and of the session: %v at T = %v", worst, timeout)
	if worst < timeout/6 {
		t.Error("margin too small")
	}
}

// A session that is closed is not trusted any more when the servers hear of it: what it held goes to others at once. The clock is
// made to stop for a second where trust is ended, which gives the request to close all the time it needs.
func TestTrustEndsBeforeTheSessionIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s, err := session.New([]string{"zk:2181"}, session.Options{Timeout: timeout, Dial: w.net.Client("a").Dial})
		noerr.Must(t, err)
		var stopping, stopped, closed atomic.Bool
		start := time.Now()
		ctx, stop := context.WithCancel(clocks.With(t.Context(), func() (mono, wall time.Duration) {
			if stopping.Load() && calledFrom("(*Incarnation).finish") {
				stopped.Store(true)
				time.Sleep(time.Second)
			}
			return time.Since(start), time.Since(start)
		}))
		defer stop()
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		inc, err := s.Incarnation(ctx)
		noerr.Must(t, err)
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCloseSession {
				closed.Store(true)
				if inc.Trusted() {
					t.Error("the server is closing the session while it is trusted")
				}
			}
			return zktest.Action{}
		})
		stopping.Store(true)
		stop()
		wantErr(t, "Run", <-done, nil)
		if !stopped.Load() || !closed.Load() {
			t.Errorf("the clock stopped: %v, the session was closed: %v; this test tests nothing", stopped.Load(), closed.Load())
		}
	})
}

// calledFrom reports whether a function whose name ends like that is among those that are being called.
func calledFrom(function string) bool {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
}
