package barrier_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The session expires under a member that waits. If the others entered with it and left, Enter can't tell; if nothing happened,
// it waits on, with another znode.
func TestSessionKilledWhileWaiting(t *testing.T) {
	for _, passed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			s := w.Session("a")
			d := w.double(s, 2, "")
			c := w.enter(w.Context(), d)
			w.goesOn(c)
			id := w.ID(s)
			w.Unplug("a")
			if passed {
				w.make(highest, "ready")
				w.remove("ready")
			}
			w.Srv.KillSession(id)
			if passed {
				w.remove(highest)
			}
			w.Net.Client("a").Heal()
			if passed {
				w.ended(c, session.ErrUncertain)
				return
			}
			w.goesOn(c)
			if w.ID(s) == id {
				w.Fatal("the session is the same")
			}
			w.wantChildren(nameOf(d))
			w.make(highest, "ready")
			m := w.in(c)
			w.remove(highest)
			w.ended(w.leave(w.Context(), m), nil)
		})
	}
}

// The session expires under a member that waits, and then another comes: they enter together.
func TestSessionKilledThenComplete(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		d := w.double(s, 2, "")
		c := w.enter(w.Context(), d)
		w.goesOn(c)
		id := w.ID(s)
		w.Unplug("a")
		w.Srv.KillSession(id)
		w.make(highest)
		w.Net.Client("a").Heal()
		m := w.in(c)
		w.wantChildren(nameOf(d), highest, "ready")
		w.remove(highest)
		w.ended(w.leave(w.Context(), m), nil)
	})
}

// Enter deletes a ready that was left behind if no member exists. Otherwise it leaves ready alone: the delete would use up the
// only watch of a Python process.
func TestStaleReady(t *testing.T) {
	inWorld(t, func(w *world) {
		w.make("ready")
		d := w.double(w.Session("a"), 2, "")
		c := w.enter(w.Context(), d)
		w.goesOn(c)
		if d.Participating() {
			w.Error("it went in alone")
		}
		w.wantChildren(nameOf(d))
		w.make("ready")
		m := w.in(c)
		w.ended(w.leave(w.Context(), m), nil)

		w.make(highest, "ready")
		_, before, _ := w.Srv.Get(path + "/ready")
		third := w.double(w.Session("b"), 3, "")
		m = w.in(w.enter(w.Context(), third))
		if _, now, ok := w.Srv.Get(path + "/ready"); !ok || now != before {
			w.Errorf("ready: %v, %+v, was %+v", ok, now, before)
		}
		l := w.leave(w.Context(), m)
		w.goesOn(l)
		w.remove(highest)
		w.ended(l, nil)
		w.wantChildren()
	})
}

// Whatever reply is lost, no znode is left behind and all members enter and leave.
func TestLostReplies(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetChildren2, zktest.OpExists, zktest.OpSync} {
		for losses := 1; losses <= 3; losses++ {
			inWorld(t, func(w *world) {
				a, b := w.double(w.Session("a"), 2, ""), w.double(w.Session("b"), 2, "")
				w.Srv.LoseReply(losses, func(r zktest.Request) bool { // not proofs of life
					return r.Op == op && (op != zktest.OpMulti || len(r.Ops) > 1)
				})
				one := w.enter(w.Context(), a)
				time.Sleep(time.Second)
				two := w.enter(w.Context(), b)
				w.in(one)
				w.in(two)
				l := w.leave(w.Context(), one.Value)
				time.Sleep(time.Second)
				w.ended(w.leave(w.Context(), two.Value), nil)
				w.ended(l, nil)
				w.wantChildren()
			})
		}
	}
}

// A member's context ends for several causes, and the member can leave after each.
func TestLost(t *testing.T) {
	for what, tt := range map[string]struct {
		do    func(w *world, s *session.Session, m *barrier.Member)
		want  error
		stays bool
	}{
		"removed": {func(w *world, _ *session.Session, m *barrier.Member) { w.remove(m.Node()[len(path)+1:]) }, barrier.ErrLost, false},
		"expired": {func(w *world, s *session.Session, _ *barrier.Member) { w.Kill(s) }, session.ErrSessionExpired, false},
		"no trust": {func(w *world, _ *session.Session, m *barrier.Member) {
			w.Net.Client("a").BlackHole(zktest.Both)
			<-m.Context().Done()
			w.Net.Client("a").Heal()
		}, session.ErrTrustLost, true},
	} {
		inWorld(t, func(w *world) {
			s := w.Session("a")
			d := w.double(s, 2, "")
			w.make(lowest)
			m := w.in(w.enter(w.Context(), d))
			tt.do(w, s, m)
			w.ended(w.later(func() error { <-m.Context().Done(); return context.Cause(m.Context()) }), tt.want)
			time.Sleep(5 * time.Second)
			if _, _, ok := w.Srv.Get(m.Node()); ok != tt.stays || d.Participating() {
				w.Errorf("%s: exists: %v", what, ok)
			}
			l := w.leave(w.Context(), m)
			w.goesOn(l)
			w.remove(lowest)
			w.ended(l, nil)
		})
	}
}

// On a slow link the others enter and leave within one round trip of ours, and ready is gone when Enter reads the directory for
// the first time. The watch on ready, set before its znode was created, tells it that it has entered.
func TestSlowMember(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inWorld(t, func(w *world) {
				for ; ; w.remove(w.Srv.Children(path)...) {
					slow, others := w.double(w.Session("slow"), n, ""), make([]*barrier.DoubleBarrier, n-1)
					for i := range others {
						others[i] = w.double(w.Session(fmt.Sprint("other-", i)), n, "")
					}
					w.Net.Client("slow").Delay(500 * time.Millisecond)
					entering := w.enter(w.Context(), slow)
					for len(w.Srv.Children(path)) == 0 {
						time.Sleep(10 * time.Millisecond)
					}
					var crossing []*call
					for _, d := range others {
						crossing = append(crossing, w.later(func() error {
							m, err := d.Enter(w.Context())
							if err == nil {
								err = m.Leave(w.Context())
							}
							return err
						}))
					}
					time.Sleep(100 * time.Millisecond)
					alone := len(w.Srv.Children(path)) == 1
					m := w.in(entering)
					w.ended(w.leave(w.Context(), m), nil)
					for _, c := range crossing {
						w.ended(c, nil)
					}
					if alone { // the others go at once only if our name is the lowest
						return
					}
					w.Net.Client("slow").Heal()
				}
			})
		})
	}
}
