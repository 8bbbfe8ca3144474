package partitioner_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Members that come and go start the time boundary again. Watches that fire without such a change do not, or a boundary longer
// than the session timeout would never pass.
func TestTimeBoundary(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: 40 * time.Second})
		start := time.Now()
		m.start()
		time.Sleep(10 * time.Second)
		w.Net.Client("p0").Cut()
		time.Sleep(20 * time.Second)
		w.Must(errors.Join(w.Srv.Create(guest, nil), w.Srv.Delete(guest)))
		m.wait(partitioner.Acquired)
		if d := time.Since(start); d < 70*time.Second || d > 71*time.Second {
			w.Errorf("acquired after %v", d)
		}
	})
}

// Somebody deletes the contender of a lock that we hold, or all znodes.
func TestLockLost(t *testing.T) {
	for _, all := range []bool{false, true} {
		inWorld(t, func(w *world) {
			m := w.join("p0", "0", "1")
			m.wantItems("0", "1")
			a := m.Allocation()
			lost, left := a.Node("1"), 1
			if all {
				lost, left = "/app", 0
			}
			w.Must(w.Srv.Delete(lost))
			m.wait(partitioner.Release)
			if cause := context.Cause(a.Context()); !errors.Is(cause, lock.ErrLost) {
				w.Errorf("the allocation ended with %v", cause)
			}
			if len(w.contenders()) != left {
				w.Errorf("locks were given away: %q", w.contenders())
			}
			m.releaseSet()
			m.wantItems("0", "1")
		})
	}
}

// The sequence numbers of an item's lock have come to their end.
func TestNumbersAtTheirEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(errors.Join(w.Srv.Create(path+"/locks/0", nil), w.Srv.SetCreates(path+"/locks/0", math.MaxInt32)))
		m := w.join("p0", "0")
		m.failed(lock.ErrSequenceExhausted)
		m.finish()
		w.clean()
	})
}

// Trust ends while the set is being divided: nobody works yet, so the member starts again by itself.
func TestTrustLostWhileAllocating(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(blocker, nil))
		m := w.join("p0", "0", "1")
		time.Sleep(time.Second)
		w.loseTrust("p0", w.Incarnation(m.session))
		time.Sleep(time.Second)
		if !m.Allocating() {
			w.Fatal(m.State())
		}
		w.Must(w.Srv.Delete(blocker))
		m.wantItems("0", "1")
	})
}

// The session expires while the set is being divided.
func TestSessionExpires(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: time.Minute})
		m.start()
		w.Kill(m.session)
		m.failed(session.ErrSessionExpired)
		m.finish()
		m.start()
		time.Sleep(time.Second)
		w.Net.Client("p0").BlackHole(zktest.Both)
		time.Sleep(20 * time.Second)
		w.Net.Client("p0").Heal()
		healed := time.Now()
		m.failed(session.ErrSessionExpired)
		if d := time.Since(healed); d > 10*time.Second {
			w.Errorf("failed %v after the next session", d)
		}
		m.finish()
		w.clean()
	})
}

// Replies and requests are lost.
func TestLostRequestsAndReplies(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpDelete} {
		for _, executed := range []bool{true, false} {
			inWorld(t, func(w *world) {
				n := 0
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op != op {
						return zktest.Action{}
					}
					n++
					return zktest.Action{LoseReply: executed && n%2 == 1, Cut: !executed && n%2 == 1}
				})
				m := w.join("p0", "0", "1")
				m.wantItems("0", "1")
				m.releaseSet()
				m.wantItems("0", "1")
				m.finish()
				w.clean()
				if n < 3 {
					w.Errorf("%v: %d requests", op, n)
				}
			})
		}
	}
}

// The caller gives up a Start without a link: no znode is left, and Start may be called again.
func TestStartGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		client := w.Net.Client("p0")
		client.Refuse() // before its session can connect
		m := w.member("p0", []string{"0"}, partitioner.Options{})
		if err := m.Start(w.Within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		client.Heal()
		time.Sleep(10 * time.Second)
		w.clean()
		m.start()
		if err := m.Start(w.Context()); !errors.Is(err, partitioner.ErrStarted) {
			w.Errorf("a second time: %v", err)
		}
		if err := m.Run(w.Context(), func(context.Context, []string) error { return nil }); !errors.Is(err, partitioner.ErrStarted) {
			w.Errorf("Run: %v", err)
		}
		m.wantItems("0")
	})
}

// Finish and ReleaseSet without a link return with their context, and go on in the background.
func TestFinishWithoutALink(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0", "1")
		m.wantItems("0", "1")
		client := w.Unplug("p0")
		for i, call := range []func(context.Context) error{m.ReleaseSet, m.Finish} {
			ctx, cancel := context.WithTimeout(w.Context(), 100*time.Millisecond)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("%d: %v", i, err)
			}
			cancel()
		}
		client.Heal()
		m.finish()
		w.clean()
	})
}

// The session is closed under a partitioner.
func TestSessionClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		s, stop := w.sessionWith("p0")
		m := w.memberIn(s, "p0", []string{"0"}, partitioner.Options{})
		m.start()
		m.wantItems("0")
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		time.Sleep(5 * time.Second)
		if !m.Acquired() {
			w.Errorf("the session did not wait: %v", m.State())
		}
		m.finish()
		<-stopped
		if err := m.Start(w.Context()); !errors.Is(err, session.ErrClosed) {
			w.Errorf("got %v", err)
		}
	})
}
