package ownership_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// wantWaiting checks that a member is not ready, and that it says why; with "" that it is ready.
func (m *member) wantWaiting(why string) {
	m.w.t.Helper()
	got := m.owner.NotReady()
	if why == "" && got != "" || why != "" && !strings.Contains(got, why) {
		m.w.t.Errorf("%s waits for %q, want %q", m.name, got, why)
	}
}

// A member is ready once its first claims are settled, and stays so when the plan gives it more. It is not while its session is
// not trusted, and not before what it had is claimed again.
func TestWaiting(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		hold := func(requests func(zktest.Request) bool) (end func()) {
			gate := make(chan struct{})
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if requests(*r) {
					<-gate
				}
				return zktest.Action{}
			})
			return func() { close(gate); w.srv.SetHook(nil) }
		}
		w.owner = nil // no plan
		w.srv.Freeze()
		a := w.join("a", memberOptions{})
		time.Sleep(time.Second)
		a.wantWaiting("not trusted")
		w.srv.Thaw()
		time.Sleep(5 * time.Second)
		a.wantWaiting("not joined")
		end := hold(claims)
		w.assign(map[string]string{"a": items(3)})
		time.Sleep(time.Second)
		a.wantWaiting("first claims: 3 more")
		end()
		time.Sleep(time.Second)
		a.wantWaiting("")

		end = hold(claims)
		w.assign(map[string]string{"a": items(5)})
		time.Sleep(time.Second)
		a.wantWaiting("") // the first claims were settled
		end()
		a.owns(time.Second, items(5))

		w.srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Ignore: proof(r)} })
		w.within(15*time.Second, "trust ends", func() bool { return a.ses.Current() == nil })
		a.wantWaiting("not trusted")
		end = hold(func(r zktest.Request) bool { return strings.HasPrefix(r.Path, owners+"/") })
		w.within(15*time.Second, "trusted", func() bool { return a.ses.Current() != nil })
		a.wantWaiting("first claims")
		time.Sleep(time.Second)
		a.wantWaiting("first claims: 5 more")
		end()
		time.Sleep(time.Second)
		a.wantWaiting("")
		a.owns(0, items(5))

		a.brain.leaveIn = make(chan struct{})
		a.quit()
		time.Sleep(time.Second)
		a.wantWaiting("leaving")
		close(a.brain.leaveIn)
		<-a.done
		a.wantWaiting("leaving")
	})
}

// A member to which the plan gives nothing is ready.
func TestWaitingForNothing(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		w.owning("b", items(3), memberOptions{})
		a := w.join("a", memberOptions{})
		time.Sleep(time.Second)
		a.wantWaiting("")
	})
}

// A partition that can't be claimed keeps a member from being ready for RebalanceTimeout at most.
func TestWaitingForWhatCanNotBeClaimed(t *testing.T) {
	const timeout = 20 * time.Second
	for name, test := range map[string]struct {
		prepare func(w *world)
		opts    memberOptions
		owns    string
		at      time.Duration // ready before
		not     time.Duration // not ready at
	}{
		"another drains": {
			prepare: func(w *world) { w.owning("b", "t:0", memberOptions{drain: 10 * time.Minute}) },
			opts:    memberOptions{Options: ownership.Options{RebalanceTimeout: timeout}}, owns: "t:1 t:2", not: timeout - time.Second, at: timeout + time.Second,
		},
		"another drains in time": {
			prepare: func(w *world) { w.owning("b", "t:0", memberOptions{drain: 5 * time.Second}) },
			opts:    memberOptions{Options: ownership.Options{RebalanceTimeout: timeout}}, owns: items(3), not: 4 * time.Second, at: 6 * time.Second,
		},
		"persistent claim": {
			prepare: func(w *world) { _ = w.srv.Create(owners+"/t:0", nil) },
			opts:    memberOptions{Options: ownership.Options{RebalanceTimeout: timeout}}, owns: "t:1 t:2", not: timeout - time.Second, at: timeout + time.Second,
		},
		"no room": {
			opts: memberOptions{session: session.Options{EphemeralBudget: 2 * (len(owners) + len("/t:0") + 4)}}, at: time.Second,
		},
		"refused": {
			opts: memberOptions{Options: ownership.Options{Accept: func(p kiel.Partition) error {
				if p.ID == 0 {
					return errors.New("not mine")
				}
				return nil
			}}}, owns: "t:1 t:2", at: time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				if test.prepare != nil {
					test.prepare(w)
				}
				w.owner = nil
				a := w.join("a", test.opts)
				time.Sleep(time.Second)
				began := time.Now()
				w.assign(map[string]string{"a": items(3)})
				time.Sleep(test.not)
				if test.not > 0 {
					a.wantWaiting("first claims: 1 more")
				}
				time.Sleep(test.at - time.Since(began))
				a.wantWaiting("")
				if test.owns != "" && a.owned() != test.owns {
					t.Errorf("owns %q", a.owned())
				}
			})
		})
	}
}

// Alive asks the loop, whatever becomes of ZooKeeper, and says how Run has ended.
func TestAlive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.owning("a", "t:0", memberOptions{}), w.join("b", memberOptions{})
		idle, err := ownership.NewFromSource(newBrain(a.ses, "g", "c"), a.work, ownership.Options{})
		noerr.Must(t, err)
		for _, o := range []*ownership.Owner{a.owner, b.owner, idle} {
			noerr.Want(t, o.Alive(t.Context()))
		}
		w.srv.Freeze()
		time.Sleep(time.Minute)
		noerr.Want(t, a.owner.Alive(t.Context()))
		w.srv.Thaw()
		a.owns(time.Minute, "t:0")

		gate := make(chan struct{})
		ownership.Occupy(a.owner, gate)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.owner.Alive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a loop that hangs: %v", err)
		}
		close(gate)
		failure := errors.New("ouch")
		b.brain.fail <- failure
		<-b.done
		if err := b.owner.Alive(t.Context()); !errors.Is(err, failure) {
			t.Errorf("after Run has failed: %v", err)
		}
		a.quit()
		<-a.done
		noerr.Want(t, a.owner.Alive(t.Context()))
	})
}
