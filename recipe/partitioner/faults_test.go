package partitioner_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Members that come and go start the time boundary again. Watches that fire without such a change do not, or a boundary longer
// than the session timeout would never pass.
func TestTimeBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: 40 * time.Second})
		start := time.Now()
		m.start()
		time.Sleep(10 * time.Second)
		w.Net.Client("p0").Cut()
		time.Sleep(20 * time.Second)
		guest := path + "/party/514e5a831836450cb1a56c741e990fd8-guest"
		if err := errors.Join(w.Srv.Create(guest, nil), w.Srv.Delete(guest)); err != nil {
			t.Fatal(err)
		}
		m.wait(partitioner.Acquired)
		if d := time.Since(start); d < 70*time.Second || d > 71*time.Second {
			t.Errorf("acquired after %v", d)
		}
	})
}

// Somebody deletes the contender of a lock that we hold.
func TestLockLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("p0", "0", "1")
		m.wantItems("0", "1")
		a := m.Allocation()
		if err := w.Srv.Delete(a.Node("1")); err != nil {
			t.Fatal(err)
		}
		m.wait(partitioner.Release)
		if cause := context.Cause(a.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the allocation ended with %v", cause)
		}
		if len(w.contenders()) != 1 {
			t.Errorf("locks were given away: %q", w.contenders())
		}
		m.releaseSet()
		m.wantItems("0", "1")
	})
}

// Somebody deletes all znodes.
func TestEverythingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("p0", "0", "1")
		m.wantItems("0", "1")
		if err := w.Srv.Delete("/app"); err != nil {
			t.Fatal(err)
		}
		m.wait(partitioner.Release)
		m.releaseSet()
		m.wantItems("0", "1")
	})
}

// Trust ends while the set is being divided: nobody works yet, so the member starts again by itself.
func TestTrustLostWhileAllocating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		blocker := path + "/locks/1/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		if err := w.Srv.Create(blocker, nil); err != nil {
			t.Fatal(err)
		}
		m := w.join("p0", "0", "1")
		time.Sleep(time.Second)
		inc, err := m.session.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.loseTrust("p0", inc)
		time.Sleep(time.Second)
		if !m.Allocating() {
			t.Fatal(m.State())
		}
		if err := w.Srv.Delete(blocker); err != nil {
			t.Fatal(err)
		}
		m.wantItems("0", "1")
	})
}

// The session expires while the set is being divided, and in RELEASE.
func TestSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: time.Minute})
		m.start()
		w.kill(m.session)
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
			t.Errorf("failed %v after the next session", d)
		}
		m.finish()

		one, two := w.join("p1", "0", "1"), w.join("p2", "0", "1")
		one.wantItems("0")
		two.finish()
		one.wait(partitioner.Release)
		w.kill(one.session)
		time.Sleep(5 * time.Second)
		if !one.Failed() {
			t.Errorf("state %v", one.State())
		}
		if err := one.ReleaseSet(t.Context()); !errors.Is(err, session.ErrSessionExpired) {
			t.Errorf("released: %v", err)
		}
		one.failed(session.ErrSessionExpired)
		one.finish()
		w.clean()
	})
}

// Replies and requests are lost.
func TestLostRequestsAndReplies(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpDelete} {
		for _, executed := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
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
					t.Errorf("%v: %d requests", op, n)
				}
			})
		}
	}
}

// The caller gives up a Start without a link: no znode is left, and Start may be called again.
func TestStartGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.Net.Client("p0")
		client.Refuse() // before its session can connect
		m := w.member("p0", []string{"0"}, partitioner.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		client.Heal()
		time.Sleep(10 * time.Second)
		w.clean()
		m.start()
		if err := m.Start(t.Context()); !errors.Is(err, partitioner.ErrStarted) {
			t.Errorf("a second time: %v", err)
		}
		if err := m.Run(t.Context(), func(context.Context, []string) error { return nil }); !errors.Is(err, partitioner.ErrStarted) {
			t.Errorf("Run: %v", err)
		}
		m.wantItems("0")
	})
}

// Finish and ReleaseSet without a link return with their context, and go on in the background.
func TestFinishWithoutALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("p0", "0", "1")
		m.wantItems("0", "1")
		client := w.Net.Client("p0")
		client.Refuse()
		client.Cut()
		for i, call := range []func(context.Context) error{m.ReleaseSet, m.Finish} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d: %v", i, err)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
			t.Errorf("the session did not wait: %v", m.State())
		}
		m.finish()
		<-stopped
		if err := m.Start(t.Context()); !errors.Is(err, session.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// A member acquires its locks one after the other: it has no allocation before it holds all of them, and it releases those that
// it holds when the members change.
func TestMembersChangeWhileWaitingForLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		blocker := path + "/locks/2/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		if err := w.Srv.Create(blocker, nil); err != nil {
			t.Fatal(err)
		}
		one := w.join("p0", "0", "1", "2")
		time.Sleep(time.Second)
		if list := w.contenders(); len(list) != 4 || !one.Allocating() {
			t.Fatalf("%v, %q", one.State(), list)
		}
		var others []*member
		for i := range 2 {
			others = append(others, w.join(fmt.Sprint("p", i+1), "0", "1", "2"))
		}
		one.wantItems("0")
		others[0].wantItems("1")
		if err := w.Srv.Delete(blocker); err != nil {
			t.Fatal(err)
		}
		others[1].wantItems("2")
	})
}
