package barrier_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms that executions here do without the rule that answers them (test/mutants).
const (
	hang    = "somebody waits for ever"
	refused = "nobody gets in"
	opened  = "a barrier that was set up after the one that was to be removed is gone"
	unsure  = "a member has entered, and its Enter can't tell"
)

// §2 (a) and (d): G waits; the others come, the last one creates ready, and they leave at once. When G reads the directory,
// because its watch fired or because it is connected again, all of that is gone. If G was connected, its watch on ready has told
// it. Else, with two members, G knows what came and went. With three it may have been two members one after the other: Enter
// returns that it can't tell, and does not wait.
func TestReadyCameAndWent(t *testing.T) {
	for _, away := range []bool{false, true} {
		numbers(t, func(x *execution, n int) {
			d, g := x.waits(n)
			crowd := x.crowd(n-1, false)
			for _, p := range crowd[1:] {
				p.goThrough(n)
			}
			time.Sleep(time.Second)
			link, looked := x.Net.Client("g"), x.gate()
			if away {
				link.Refuse()
				link.Cut()
			} else {
				x.hold(looked, looks)
			}
			crowd[0].goThrough(n)
			x.over("enter", crowd...)
			x.until("their going", x.only(nameOf(d)))
			link.Heal()
			looked.open()
			want := error(nil)
			if away && n > 2 {
				want = session.ErrUncertain
			}
			x.goesThrough(g, want)
			x.over("leave", crowd...)
		})
	}
}

// Why a member that waits enters by ready alone, although it could count: G sees the number, enters and leaves while the member
// that has completed the number has not read the directory yet. That member finds too few then.
func TestTheNumberIsNoSignal(t *testing.T) {
	numbers(t, func(x *execution, n int) {
		_, g := x.waits(n)
		left := x.leaveOnceIn(g)
		crowd := x.crowd(n-1, true)
		for _, p := range crowd[1:] {
			p.goThrough(n)
		}
		time.Sleep(time.Second)
		crowd[0].stops("enter: children", func() { time.Sleep(time.Second) })
		crowd[0].goThrough(n)
		x.over("enter", crowd...)
		x.over("leave", crowd...)
		if x.ends("enter", g, nil) {
			x.ends("leave", left, nil)
		}
	})
}

// §2 (b), leaving ready to the last: G completes the number, but the others see it, too, and are leaving when G creates ready.
// The one with the lowest name takes ready for the highest member, and waits for it.
func TestReadyIsLeftToTheLast(t *testing.T) {
	numbers(t, func(x *execution, n int) {
		d := x.double(x.Session("g"), n, "")
		x.Must(x.Srv.Create(path, nil))
		crowd := x.crowd(n-1, true)
		asked, making := x.gate(), x.gate()
		waiting := make([]*gate, len(crowd))
		for i := range waiting {
			waiting[i] = x.gate()
		}
		leaving := make(chan struct{}, n)
		for _, p := range crowd {
			p.stops("leave: children", func() {
				if leaving <- struct{}{}; len(leaving) == len(crowd) {
					making.open()
				}
				p.awaits(x.exists("ready"))
			})
		}
		crowd[0].stops("enter: children", asked.pass)
		crowd[0].stops("leave: wait", waiting[0].open)
		for i, p := range crowd[1:] {
			p.stops("leave: exists", waiting[i+1].open)
			p.goThrough(n)
		}
		time.Sleep(time.Second)
		crowd[0].goThrough(n)
		time.Sleep(time.Second)
		x.hold(making, func(r zktest.Request) bool {
			makes := r.Op == zktest.OpMulti && len(r.Ops) > 1
			if makes {
				asked.open()
			}
			return makes
		})
		g := x.enter(d)
		if !x.ends("enter", g, nil) || g.Value == nil {
			return
		}
		for _, w := range waiting {
			w.pass()
		}
		left := x.leave(g.Value)
		x.over("leave", crowd...)
		x.ends("leave", left, nil)
	})
}

// §2 (b), creating ready again: when G has read the directory the others have deleted ready, and are leaving. Nobody deletes a
// new ready if G is killed.
func TestReadyIsMadeAgain(t *testing.T) {
	numbers(t, func(x *execution, n int) {
		s := x.Session("g")
		id, d := x.ID(s), x.double(s, n, "")
		g := x.enter(d)
		x.until("our znode", x.exists(nameOf(d)))
		crowd := x.crowd(n-1, true)
		looked := x.gate()
		leaving := make(chan struct{}, n)
		for _, p := range crowd {
			p.stops("leave: children", func() {
				if leaving <- struct{}{}; len(leaving) == len(crowd) {
					looked.open()
				}
				<-g.Done
			})
		}
		for _, p := range crowd[1:] {
			p.goThrough(n)
		}
		time.Sleep(time.Second)
		x.hold(looked, looks)
		crowd[0].goThrough(n)
		if !x.ends("enter", g, nil) || g.Value == nil {
			return
		}
		x.Srv.KillSession(id)
		x.over("leave", crowd...)
	})
}

// §2 (c): a ready was left behind. If G deletes it when a Python process has come, that uses up the process's only watch: three
// enter, and it never wakes. (It takes four: kazoo counts ready as a member.)
func TestStaleReadyUsesUpTheOnlyWatch(t *testing.T) {
	inExecution(t, func(x *execution) {
		x.make("ready")
		d := x.double(x.Session("g"), 4, "")
		waits := x.gate()
		x.hold(waits, func(r zktest.Request) bool {
			return r.Op == zktest.OpDelete && r.Path == path+"/ready" && x.exists(nameOf(d))()
		})
		g := x.enter(d)
		x.until("our znode", x.exists(nameOf(d)))
		crowd := x.crowd(3, false)
		for _, p := range crowd {
			p.stops("leave: ready", func() { <-g.Done })
		}
		crowd[0].stops("enter: wait", waits.open)
		crowd[0].goThrough(4)
		x.until("one that waits", func() bool {
			select {
			case <-waits.c:
				return !x.exists("ready")()
			default:
				return false
			}
		})
		for _, p := range crowd[1:] {
			time.Sleep(time.Second) // not at once: Python processes can strand each other
			p.goThrough(4)
		}
		x.over("enter", crowd...)
		x.goesThrough(g, nil)
	})
}

// Why each Enter has another GUID, though kazoo's objects have one each: a Python process that leaves has seen our name in the
// list. When it reads our znode we are in the next round already. It must not wait for the znode of that round.
func TestNameOfTheRoundBefore(t *testing.T) {
	inExecution(t, func(x *execution) {
		d, g := x.waits(2)
		p := x.crowd(1, false)[0]
		again := x.gate()
		p.stops("leave: exists", again.pass)
		p.goThrough(2)
		x.over("enter", p)
		if !x.ends("enter", g, nil) || !x.ends("leave", x.leave(g.Value), nil) {
			return
		}
		g = x.enter(d)
		x.until("our next znode", x.exists(nameOf(d)))
		again.open()
		if x.over("leave", p); p.ctx.Err() != nil {
			return
		}
		p.goThrough(2)
		x.over("enter", p)
		x.goesThrough(g, nil)
		x.over("leave", p)
	})
}

// §13: somebody deletes the directory between two rounds.
func TestDirectoryDeleted(t *testing.T) {
	inExecution(t, func(x *execution) {
		x.Must(x.Srv.Create(path, nil))
		d := x.double(x.Session("g"), 1, "")
		for range 2 {
			m, err := d.Enter(x.Context())
			if errors.Is(err, session.ErrNoNode) {
				x.Errorf(refused+": %v", err)
				return
			}
			x.Must(err)
			x.Check(m.Leave(x.Context()))
			x.Check(x.Srv.Delete(path))
		}
	})
}

// §14: the barrier is removed and set up again between the event and the read of the process that waits.
func TestSetUpAgainBeforeTheLook(t *testing.T) {
	inExecution(t, func(x *execution) {
		x.Must(x.Srv.Create(path, nil))
		b := x.barrier(x.Session("g"))
		c := x.later(b.Wait)
		time.Sleep(time.Second)
		link := x.Net.Client("g")
		link.BlackHole(zktest.ToClient)
		x.Must(errors.Join(x.Srv.Delete(path), x.Srv.Create(path, nil)))
		link.Heal()
		x.ends("wait", c, nil)
	})
}

// A child that came and went need not have been ready: here it is a process that dies at once. The member that completes the
// number has yet to read the directory, or is G itself.
func TestAnotherCameAndWent(t *testing.T) {
	for what, gFirst := range map[string]bool{"before the last one came": true, "before G came": false} {
		t.Run(what, func(t *testing.T) {
			numbers(t, func(x *execution, n int) {
				x.Must(x.Srv.Create(path, nil))
				d := x.double(x.Session("g"), n, "")
				crowd := x.crowd(n-1, true)
				for _, p := range crowd[1:] {
					p.goThrough(n)
				}
				time.Sleep(time.Second)
				guest := func() {
					x.make("1")
					x.remove("1")
				}
				var g *call
				if gFirst {
					g = x.enter(d)
					time.Sleep(time.Second)
					looked := x.gate()
					x.hold(looked, looks)
					guest()
					crowd[0].stops("enter: children", func() {
						looked.open()
						time.Sleep(time.Second)
					})
					crowd[0].goThrough(n)
				} else {
					crowd[0].goThrough(n)
					time.Sleep(time.Second)
					var once sync.Once
					x.Srv.SetHook(func(r *zktest.Request) zktest.Action {
						if r.Op == zktest.OpCreate && r.Client == "g" {
							once.Do(guest)
						}
						return zktest.Action{}
					})
					g = x.enter(d)
				}
				left := x.leaveOnceIn(g)
				x.ends("enter", g, nil)
				x.over("enter", crowd...)
				x.over("leave", crowd...)
				x.ends("leave", left, nil)
			})
		})
	}
}

// The others have entered and are leaving, and one member has come for the next round, which completes the number with those that
// still stand. Then they go. G can't tell that it has entered, but it must not wait for the next round, whose members wait for G.
func TestNextRoundBeginsBeforeTheLook(t *testing.T) {
	inExecution(t, func(x *execution) {
		_, g := x.waits(3)
		crowd := x.crowd(3, false)
		crowd[0].goThrough(3)
		time.Sleep(time.Second)
		looked := x.gate()
		x.hold(looked, looks)
		crowd[1].stops("leave: children", func() { time.Sleep(10 * time.Second) })
		crowd[1].goThrough(3)
		x.until("the first one's going", func() bool { return !x.exists(crowd[0].node)() })
		crowd[2].stops("enter: children", func() {
			looked.open()
			time.Sleep(time.Minute)
		})
		crowd[2].goThrough(3)
		x.ends("enter", g, session.ErrUncertain)
		x.over("leave", crowd[:2]...)
	})
}

// §2: G has seen the number. When it reads again ready has come and gone, and the others with it. G has lost its connection
// meanwhile, and with it the watch on ready.
func TestNumberSeen(t *testing.T) {
	inExecution(t, func(x *execution) {
		d, g := x.waits(3)
		crowd := x.crowd(2, false)
		crowd[1].goThrough(3)
		time.Sleep(time.Second)
		looked := x.gate()
		crowd[0].stops("enter: children", func() {
			time.Sleep(time.Second)
			x.hold(looked, looks)
			x.Net.Client("g").Cut()
		})
		crowd[0].goThrough(3)
		x.over("enter", crowd...)
		x.until("their going", x.only(nameOf(d)))
		looked.open()
		if x.until("the end of Enter", g.ended); errors.Is(g.Err, session.ErrUncertain) {
			x.Errorf(unsure+": %v", g.Err)
		} else if x.ends("enter", g, nil) {
			x.ends("leave", x.leave(g.Value), nil)
		}
		x.over("leave", crowd...)
	})
}

// General rules, of deletes: G removes the barrier and the reply is lost. Before G reads the barrier, somebody sets it up again:
// that is another barrier, which G must not remove.
func TestSetUpAgainBeforeTheRetry(t *testing.T) {
	inExecution(t, func(x *execution) {
		x.Must(x.Srv.Create(path, []byte("first")))
		b := x.barrier(x.Session("g"))
		x.Steps(
			recipetest.LosesReply(is(zktest.OpDelete)),
			recipetest.Before(func(zktest.Request) bool { return true }, func() { x.Check(x.Srv.Create(path, []byte("second"))) }),
		)
		if there, err := b.Remove(x.Context()); !there || err != nil {
			x.Errorf("removed: %v, %v", there, err)
		}
		if data, _, ok := x.Srv.Get(path); !ok || string(data) != "second" {
			x.Errorf(opened+": %q exists", data)
		}
	})
}
