package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		a.joined()
		b.awaitNames(time.Second, "a", "b")
		time.Sleep(time.Second)
		start := time.Now()
		must(t, a.Leave(t.Context()))
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if _, ok := c.stands("a"); ok {
			t.Error("Leave has returned, the znode stands")
		}
		if view, _ := a.awaitNames(time.Second, "b"); view.Joined {
			t.Error("the view says that we are a member")
		}
		b.awaitNames(time.Second, "b")
		must(t, a.Leave(t.Context()))
		// It goes on watching, and does not come back: not in a new session,
		// not when the directory goes.
		c.srv.KillSession(c.sessionOf("a"))
		time.Sleep(time.Minute)
		must(t, c.srv.Delete(directory))
		time.Sleep(time.Minute)
		c.join("d").joined()
		if view, _ := a.awaitNames(time.Second, "b", "d"); view.Joined {
			t.Error("it came back")
		}
		must(t, a.stop())
		must(t, a.Leave(t.Context()))
	})
}

func TestLeaveBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.session("a")
		p, err := party.New(s, directory, party.Options{Name: "a"})
		must(t, err)
		must(t, p.Leave(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, p.Run(ctx))
		if v := p.View(); v == nil || v.Joined || len(v.Members) != 0 {
			t.Errorf("got %s", show(v))
		}
		must(t, p.Leave(t.Context()))
	})
}

// TestLeaveBeforeFirstConnection: there is nothing to wait for, and no coming back later.
func TestLeaveBeforeFirstConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.net.Refuse()
		a := c.join("a")
		time.Sleep(time.Minute)
		start := time.Now()
		must(t, a.Leave(t.Context()))
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v", took)
		}
		c.net.Heal()
		a.awaitNames(time.Minute)
		time.Sleep(time.Minute)
		if _, ok := c.stands("a"); ok {
			t.Error("it came back")
		}
		must(t, a.stop())
	})
}

// TestLeaveWhileNameIsTaken: nobody waits any more.
func TestLeaveWhileNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		b := c.secondOf("x")
		must(t, b.Leave(t.Context()))
		time.Sleep(time.Minute)
		if _, ok := c.stands("x"); !ok {
			t.Error("the holder's znode is gone")
		}
		must(t, b.stop())
		if n := c.srv.Stats().Requests[zktest.OpGetChildren2]; n > 100 {
			t.Errorf("the directory was read %d times", n)
		}
	})
}

func TestLeaveSparesForeignZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("x")
		a.joined()
		// While it is away, somebody takes its place.
		c.net.Client("x").BlackHole(zktest.Both)
		c.namesake("x")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, context.DeadlineExceeded)
		defer cancel()
		wantErr(t, a.Leave(ctx), context.DeadlineExceeded)
		c.net.Client("x").Heal()
		must(t, a.Leave(t.Context()))
		if stat, ok := c.stands("x"); !ok || stat.EphemeralOwner != c.sessionOf("namesake of x") {
			t.Error("the namesake's znode is gone")
		}
		must(t, a.stop())
	})
}

// TestLeaveIsNotAlone: others touch the znode, and replies get lost, at the
// worst moment.
func TestLeaveIsNotAlone(t *testing.T) {
	for name, onDelete := range map[string]func(c *cluster) zktest.Action{
		"changed": func(c *cluster) zktest.Action { _ = c.srv.Set(node("a"), nil); return zktest.Action{} },
		"deleted": func(c *cluster) zktest.Action { _ = c.srv.Delete(node("a")); return zktest.Action{} },
		"cut":     func(*cluster) zktest.Action { return zktest.Action{Cut: true} },
		"lost":    func(*cluster) zktest.Action { return zktest.Action{LoseReply: true} },
	} {
		for _, how := range []string{"leave", "stop"} {
			t.Run(how+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					a := c.join("a")
					a.joined()
					hit := false
					c.srv.SetHook(func(r *zktest.Request) zktest.Action {
						if r.Op != zktest.OpDelete || hit {
							return zktest.Action{}
						}
						hit = true
						return onDelete(c)
					})
					if how == "leave" {
						must(t, a.Leave(t.Context()))
					}
					must(t, a.stop())
					must(t, a.Leave(t.Context()))
					c.unhook()
					if _, ok := c.stands("a"); ok || !hit {
						t.Errorf("stands %v, hit %v", ok, hit)
					}
				})
			})
		}
	}
}

// TestStopAfterSessionEnd: there is nothing left to leave.
func TestStopAfterSessionEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		a.joined()
		c.srv.RefuseHandshakes(true)
		c.srv.KillSession(c.sessionOf("a"))
		go func() { time.Sleep(time.Second); c.srv.RefuseHandshakes(false) }()
		must(t, a.stop())
		must(t, a.Leave(t.Context()))
	})
}

// TestSessionIsHeld: a session that is told to stop waits for the party.
func TestSessionIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, stop := c.session("a")
		a := c.run(s, party.Options{Name: "a"})
		a.joined()
		go stop()
		time.Sleep(10 * time.Second)
		if _, ok := c.stands("a"); !ok {
			t.Error("the session did not wait")
		}
		must(t, a.stop())
		must(t, a.Leave(t.Context()))
		if n := c.srv.Stats().Requests[zktest.OpDelete]; n != 1 {
			t.Errorf("%d deletes", n)
		}
	})
}

// TestStopWithoutServer: Run ends in time, and the znode goes with the session.
func TestStopWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, stop := c.session("a")
		a := c.run(s, party.Options{Name: "a"})
		a.joined()
		c.net.Client("a").Freeze()
		start := time.Now()
		must(t, a.stop())
		if took := time.Since(start); took > timeout+time.Second {
			t.Errorf("took %v", took)
		}
		wantErr(t, a.Leave(t.Context()), party.ErrStopped)
		c.net.Client("a").Heal()
		stop()
		time.Sleep(timeout + 2*tick)
		if _, ok := c.stands("a"); ok {
			t.Error("the znode outlived its session")
		}
	})
}

func TestStopBeforeFirstConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.net.Refuse()
		a := c.join("a")
		time.Sleep(time.Minute)
		start := time.Now()
		must(t, a.stop())
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		if a.View() != nil {
			t.Errorf("a view out of nothing: %s", show(a.View()))
		}
	})
}

// TestStopWhileJoining: a create that was sent and not answered is not left
// behind.
func TestStopWhileJoining(t *testing.T) {
	const ms = time.Millisecond
	for after := time.Duration(0); after <= 400*ms; after += 20 * ms {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, _ := c.session("a")
			c.net.Client("a").Delay(15 * ms)
			a := c.run(s, party.Options{Name: "a"})
			time.Sleep(after)
			must(t, a.stop())
			time.Sleep(time.Second)
			if _, ok := c.stands("a"); ok {
				t.Errorf("stopped after %v, the znode stands", after)
			}
		})
	}
}

// TestSessionStopsWithTheParty: both contexts end together, as in a process
// that is told to stop.
func TestSessionStopsWithTheParty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, stop := c.session("a")
		a := c.run(s, party.Options{Name: "a"})
		a.joined()
		go a.cancel()
		stop()
		<-a.done
		must(t, a.err)
		if _, ok := c.stands("a"); ok {
			t.Error("the znode stands")
		}
	})
}

func TestSessionEndsBeforeTheParty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, network := zktest.StartVirtual(t, zktest.Options{TickTime: tick})
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Timeout: timeout, StopTimeout: time.Second, Dial: network.Dial})
		must(t, err)
		c := &cluster{tb: t, srv: srv, net: network}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		a := c.run(s, party.Options{Name: "a"})
		a.joined()
		cancel()
		<-done
		<-a.done
		wantErr(t, a.err, session.ErrClosed)
	})
}
