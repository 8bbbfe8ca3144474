package recipetest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

// A session is stopped by several at once, of which the first lets time pass: all wait for its end.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		s, stop := recipetest.Stoppable(t, nw, "a", session.Options{StopTimeout: time.Second})
		if id := recipetest.ID(t, s); len(srv.Sessions()) != 1 || id != srv.Sessions()[0].ID {
			t.Errorf("id %#x, sessions %+v", id, srv.Sessions())
		}
		defer s.KeepOpen()()
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			stop()
		}()
		stop()
		if d := time.Since(start); d != time.Second || len(srv.Sessions()) != 0 {
			t.Errorf("stopped after %v, sessions %+v", d, srv.Sessions())
		}
		<-done
		stop()
	})
}

func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("why")
		ctx, end := context.WithCancelCause(t.Context())
		end(why)
		for want, failed := range map[error]bool{why: false, errors.ErrUnsupported: true} {
			noted := &noting{TB: t}
			recipetest.Ended(noted, hold{ctx}, time.Minute, want)
			if noted.failed != failed {
				t.Errorf("%v failed: %v", want, noted.failed)
			}
		}
		func() {
			defer func() { _ = recover() }()
			noted, start := &noting{TB: t}, time.Now()
			defer func() {
				if d := time.Since(start); d != time.Minute || !noted.failed {
					t.Errorf("after %v failed: %v", d, noted.failed)
				}
			}()
			recipetest.Ended(noted, t, time.Minute, why)
		}()
	})
}

type hold struct{ ctx context.Context }

func (h hold) Context() context.Context { return h.ctx }

// Who goes by the context alone is found out.
func TestInvalidBeforeItsContextEnds(t *testing.T) {
	for what, failed := range map[string]bool{"by trust": false, "by its context": true} {
		synctest.Test(t, func(t *testing.T) {
			_, nw := zktest.StartVirtual(t, zktest.Options{})
			noted := &noting{TB: t}
			recipetest.InvalidBeforeItsContextEnds(noted, nw, func(s *session.Session) recipetest.Relied {
				inc := recipetest.Must[*session.Incarnation](t)(s.Incarnation(t.Context()))
				return relied{hold: hold{inc.Context()}, inc: inc, trust: !failed}
			})
			if noted.failed != failed {
				t.Errorf("%s failed: %v", what, noted.failed)
			}
		})
	}
}

type relied struct {
	hold

	inc   *session.Incarnation
	trust bool
}

func (r relied) Valid() bool { return r.ctx.Err() == nil && (!r.trust || r.inc.Trusted()) }

func TestMust(t *testing.T) {
	if v := recipetest.Must[int](t)(7, nil); v != 7 {
		t.Errorf("got %d", v)
	}
	noted := &noting{TB: t}
	func() {
		defer func() { _ = recover() }()
		recipetest.Must[int](noted)(0, errors.ErrUnsupported)
	}()
	if !noted.failed {
		t.Error("an error did not end the test")
	}
}

// noting notes failures.
type noting struct {
	testing.TB
	failed bool
}

func (n *noting) Error(...any)          { n.failed = true }
func (n *noting) Errorf(string, ...any) { n.failed = true }

func (n *noting) Fatal(...any) {
	n.failed = true
	panic("failed")
}

// Traffic counts what arrives, not what is sent.
func TestTraffic(t *testing.T) {
	here, there := net.Pipe()
	traffic := &recipetest.Traffic{Connect: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
	c, err := traffic.Dial(t.Context(), "tcp", "zk:2181")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = there.Write([]byte("hello"))
		_, _ = io.ReadFull(there, make([]byte, 3))
		_ = there.Close()
	}()
	if data, err := io.ReadAll(io.LimitReader(c, 5)); err != nil || string(data) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := c.Write([]byte("bye")); err != nil {
		t.Error(err)
	}
	if n := traffic.Received(); n != 5 {
		t.Errorf("%d bytes received, want 5", n)
	}
}
