package kafkaconn

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/conntest"
)

// answering is a connection that brings what its rig says.
type answering struct {
	net.Conn
	of *reachRig
}

func (a answering) Read(b []byte) (int, error) {
	if a.of.answer != nil {
		return 0, a.of.answer
	}
	b[0] = 0
	return 1, nil
}

func (answering) Close() error { return nil }

// errTimeout is what Read returns at its deadline.
var errTimeout = &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}

// reachRig dials to brokers of the test.
type reachRig struct {
	t       *testing.T
	reach   Reach
	dialer  *Dialer
	refused error
	answer  error // of the next Read; nil for a byte
	began   time.Time
}

func newReachRig(t *testing.T) *reachRig {
	r := &reachRig{t: t, began: time.Now()}
	r.dialer = NewDialer(t.Context(), conntest.ConfigOn(func(string, string) (net.Conn, error) {
		return answering{of: r}, r.refused
	}), 0)
	r.dialer.Reach = &r.reach
	return r
}

// dial returns a new connection, or nil.
func (r *reachRig) dial() net.Conn {
	c, err := r.dialer.Dial("tcp", "kafka:9092")
	if err != nil && r.refused == nil {
		r.t.Fatal(err)
	}
	return c
}

// reads has c read what the broker answers; nil is a byte.
func (r *reachRig) reads(c net.Conn, answer error) {
	r.answer = answer
	_, _ = c.Read(make([]byte, 8))
}

// want checks the state, and that it has lasted since this time after the beginning; -1 is never.
func (r *reachRig) want(when string, reachable bool, since time.Duration) {
	r.t.Helper()
	got, at := r.reach.State()
	if got != reachable || at.IsZero() != (since < 0) || since >= 0 && at.Sub(r.began) != since {
		r.t.Errorf("%s: %v since %v, want %v since %v", when, got, at.Sub(r.began), reachable, since)
	}
}

func TestReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReachRig(t)
		r.want("nothing was asked", true, -1)
		r.refused = errors.New("refused in a test")
		r.dial()
		time.Sleep(ReachGrace - 1)
		r.want("it fails for a moment", true, -1)
		r.dial()
		time.Sleep(time.Nanosecond)
		r.want("it has failed for long", false, 0)
		r.refused = nil
		c := r.dial()
		r.want("a connection alone is no answer", false, 0)
		r.reads(c, nil)
		r.want("a broker answers", true, ReachGrace)
		time.Sleep(time.Hour)
		r.reads(c, nil)
		r.want("it still does", true, ReachGrace)

		time.Sleep(time.Second)
		r.reads(c, errTimeout)
		time.Sleep(ReachGrace / 2)
		r.reads(r.dial(), nil)
		time.Sleep(ReachGrace)
		r.want("another broker has answered meanwhile", true, ReachGrace)

		failed := time.Since(r.began)
		r.reads(c, errTimeout)
		r.reads(c, errTimeout)
		time.Sleep(ReachGrace)
		r.want("brokers are silent", false, failed)
	})
}

// Reach learns from a connection's bytes and failures whether Kafka answers; other ends of a connection say nothing about Kafka.
func TestReachJudgesConnections(t *testing.T) {
	for name, c := range map[string]struct {
		do        func(r *reachRig)
		reachable bool
	}{
		"closed before an answer": {func(r *reachRig) { r.reads(r.dial(), io.EOF) }, false},
		"closed later, as one that is idle": {func(r *reachRig) {
			c := r.dial()
			r.reads(c, nil)
			r.reads(c, io.EOF)
		}, true},
		"closed by this program": {func(r *reachRig) {
			c := r.dial()
			_ = c.Close()
			r.reads(c, net.ErrClosed)
		}, true},
		"TLS where none is expected": {func(r *reachRig) { r.dialer.tls = true; r.reads(r.dial(), nil) }, false},
		"silent":                     {func(r *reachRig) { r.reads(r.dial(), errTimeout) }, false},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newReachRig(t)
			c.do(r)
			time.Sleep(ReachGrace)
			if got, _ := r.reach.State(); got != c.reachable {
				t.Errorf("reachable %v, want %v", got, c.reachable)
			}
		})
	}
}

// Changed fires at the first failure and at the answer, and not between them. A waiter learns the newest reason.
func TestReachTellsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReachRig(t)
		changed := r.reach.Changed()
		told := func(when string, want bool) {
			t.Helper()
			select {
			case <-changed:
				if !want {
					t.Errorf("%s: told of a change", when)
				}
			default:
				if want {
					t.Errorf("%s: told of no change", when)
				}
			}
		}
		c := r.dial()
		r.reads(c, nil)
		told("the first answer", false)
		failed := time.Now()
		r.reads(c, errTimeout)
		told("the first failure", true)
		time.Sleep(ReachGrace - time.Second)
		r.refused = errors.New("refused in a test")
		r.dial()
		told("another failure", false)
		if since, left, why := r.reach.Failure(); !errors.Is(why, r.refused) || !since.Equal(failed) || left != time.Second {
			t.Errorf("%v since %v, out of reach after %v", why, since, left)
		}
		time.Sleep(time.Minute)
		if _, left, why := r.reach.Failure(); why == nil || left != 0 {
			t.Errorf("%v, out of reach after %v", why, left)
		}
		r.refused = nil
		r.reads(r.dial(), nil)
		told("an answer", true)
		r.reads(c, nil)
		told("another answer", false)
		if since, left, why := r.reach.Failure(); why != nil || !since.IsZero() || left != 0 {
			t.Errorf("%v since %v, out of reach after %v", why, since, left)
		}
	})
}
