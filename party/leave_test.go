package party_test

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.join("a"), w.join("b")
		a.joined()
		b.awaitNames(time.Second, "a", "b")
		time.Sleep(time.Second)
		start := time.Now()
		must(w, a.Leave(w.Context()))
		if took := time.Since(start); took > 10*time.Millisecond {
			w.Errorf("took %v", took)
		}
		w.wantGone("a")
		if view, _ := a.awaitNames(time.Second, "b"); view.Joined {
			w.Error("the view says that we are a member")
		}
		b.awaitNames(time.Second, "b")
		must(w, a.Leave(w.Context()))
		// It goes on watching, and does not come back: not in a new session, not when the directory goes.
		w.Srv.KillSession(w.sessionOf("a"))
		time.Sleep(time.Minute)
		must(w, w.Srv.Delete(directory))
		time.Sleep(time.Minute)
		w.join("d").joined()
		if view, _ := a.awaitNames(time.Second, "b", "d"); view.Joined {
			w.Error("it came back")
		}
		must(w, a.stop())
		must(w, a.Leave(w.Context()))
	})
}

func TestLeaveBeforeRun(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("a")
		p, err := party.New(s, directory, party.Options{Name: "a"})
		must(w, err)
		must(w, p.Leave(w.Context()))
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		must(w, p.Run(ctx))
		if v := p.View(); v == nil || v.Joined || len(v.Members) != 0 {
			w.Errorf("got %s", show(v))
		}
		must(w, p.Leave(w.Context()))
	})
}

// TestLeaveBeforeFirstConnection: there is nothing to wait for, and no coming back later.
func TestLeaveBeforeFirstConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		a := w.join("a")
		time.Sleep(time.Minute)
		start := time.Now()
		must(w, a.Leave(w.Context()))
		if took := time.Since(start); took > 0 {
			w.Errorf("took %v", took)
		}
		w.Net.Heal()
		a.awaitNames(time.Minute)
		time.Sleep(time.Minute)
		w.wantGone("a")
		must(w, a.stop())
	})
}

// TestLeaveWhileNameIsTaken: nobody waits any more.
func TestLeaveWhileNameIsTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.secondOf("x")
		must(w, b.Leave(w.Context()))
		time.Sleep(time.Minute)
		if _, ok := w.stands("x"); !ok {
			w.Error("the holder's znode is gone")
		}
		must(w, b.stop())
		if n := w.Srv.Stats().Requests[zktest.OpGetChildren2]; n > 100 {
			w.Errorf("the directory was read %d times", n)
		}
	})
}

func TestLeaveSparesForeignZnode(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("x")
		// While it is away, somebody takes its place.
		w.Net.Client("x").BlackHole(zktest.Both)
		w.namesake("x")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, context.DeadlineExceeded)
		defer cancel()
		wantErr(w, a.Leave(ctx), context.DeadlineExceeded)
		w.Net.Client("x").Heal()
		must(w, a.Leave(w.Context()))
		if stat, ok := w.stands("x"); !ok || stat.EphemeralOwner != w.sessionOf("namesake of x") {
			w.Error("the namesake's znode is gone")
		}
		must(w, a.stop())
	})
}

// TestLeaveIsNotAlone: others touch the znode, and replies get lost, at the worst moment.
func TestLeaveIsNotAlone(t *testing.T) {
	for name, onDelete := range map[string]func(w *world) zktest.Action{
		"changed": func(w *world) zktest.Action { _ = w.Srv.Set(node("a"), nil); return zktest.Action{} },
		"deleted": func(w *world) zktest.Action { _ = w.Srv.Delete(node("a")); return zktest.Action{} },
		"cut":     func(*world) zktest.Action { return zktest.Action{Cut: true} },
		"lost":    func(*world) zktest.Action { return zktest.Action{LoseReply: true} },
	} {
		for _, how := range []string{"leave", "stop"} {
			t.Run(how+"/"+name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					a := w.member("a")
					hit := false
					w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
						if r.Op != zktest.OpDelete || hit {
							return zktest.Action{}
						}
						hit = true
						return onDelete(w)
					})
					if how == "leave" {
						must(w, a.Leave(w.Context()))
					}
					must(w, a.stop())
					must(w, a.Leave(w.Context()))
					w.unhook()
					if _, ok := w.stands("a"); ok || !hit {
						w.Errorf("stands %v, hit %v", ok, hit)
					}
				})
			})
		}
	}
}

// TestStopAfterSessionEnd: there is nothing left to leave.
func TestStopAfterSessionEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		w.Srv.RefuseHandshakes(true)
		w.Srv.KillSession(w.sessionOf("a"))
		go func() { time.Sleep(time.Second); w.Srv.RefuseHandshakes(false) }()
		must(w, a.stop())
		must(w, a.Leave(w.Context()))
	})
}

// TestSessionIsHeld: a session that is told to stop waits for the party.
func TestSessionIsHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		go a.endSession()
		time.Sleep(10 * time.Second)
		if _, ok := w.stands("a"); !ok {
			w.Error("the session did not wait")
		}
		must(w, a.stop())
		must(w, a.Leave(w.Context()))
		if n := w.Srv.Stats().Requests[zktest.OpDelete]; n != 1 {
			w.Errorf("%d deletes", n)
		}
	})
}

// TestStopWithoutServer: Run ends in time, and the znode goes with the session.
func TestStopWithoutServer(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		w.Net.Client("a").Freeze()
		start := time.Now()
		must(w, a.stop())
		if took := time.Since(start); took > timeout+time.Second {
			w.Errorf("took %v", took)
		}
		wantErr(w, a.Leave(w.Context()), party.ErrStopped)
		w.Net.Client("a").Heal()
		a.endSession()
		time.Sleep(timeout + 2*tick)
		w.wantGone("a")
	})
}

func TestStopBeforeFirstConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		a := w.join("a")
		time.Sleep(time.Minute)
		start := time.Now()
		must(w, a.stop())
		if took := time.Since(start); took != 0 {
			w.Errorf("took %v", took)
		}
		if a.View() != nil {
			w.Errorf("a view out of nothing: %s", show(a.View()))
		}
	})
}

// TestStopWhileJoining: a create that was sent and not answered is not left behind.
func TestStopWhileJoining(t *testing.T) {
	const ms = time.Millisecond
	for after := time.Duration(0); after <= 400*ms; after += 20 * ms {
		inWorld(t, func(w *world) {
			w.Net.Client("a").Delay(15 * ms)
			a := w.join("a")
			time.Sleep(after)
			must(w, a.stop())
			time.Sleep(time.Second)
			if _, ok := w.stands("a"); ok {
				w.Errorf("stopped after %v, the znode stands", after)
			}
		})
	}
}

// TestSessionStopsWithTheParty: both contexts end together, as in a process that is told to stop.
func TestSessionStopsWithTheParty(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		go a.cancel()
		a.endSession()
		<-a.done
		must(w, a.err)
		w.wantGone("a")
	})
}

func TestSessionEndsBeforeTheParty(t *testing.T) {
	inWorld(t, func(w *world) {
		s, stop := w.stoppable("a", session.Options{StopTimeout: time.Second})
		a := w.run(s, party.Options{Name: "a"})
		a.joined()
		stop()
		<-a.done
		wantErr(w, a.err, session.ErrClosed)
	})
}
