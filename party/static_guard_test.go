package party_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A process that leaves while its successor takes over does not delete the successor's znode, though both have the same version.
func TestLateLeaveOfAStaticMember(t *testing.T) {
	inWorld(t, func(w *world) {
		older := w.static("a-1")
		older.joined()
		var newer *member
		var once sync.Once
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if (r.Op == zktest.OpMulti || r.Op == zktest.OpDelete) && r.Client == "a-1" {
				once.Do(func() {
					newer = w.static("a-2")
					newer.joined()
				})
			}
			return zktest.Action{}
		})
		must(w, older.stop())
		w.unhook()
		synctest.Wait()
		w.wantOwner("a-2")
	})
}

// The take-over whose reply was lost is found by reading, and not done again.
func TestStaticLostReply(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-1")
		m.joined()
		m.stopOrderly()
		var once sync.Once
		w.Srv.SetHook(func(r *zktest.Request) (a zktest.Action) {
			if r.Op == zktest.OpMulti && touches(r, node("a")) {
				once.Do(func() { a.LoseReply = true })
			}
			return a
		})
		_, before := w.guard()
		next := w.static("a-2")
		next.joined()
		w.unhook()
		w.wantOwner("a-2")
		if _, after := w.guard(); after != before+1 {
			w.Errorf("the guard was written %d times", after-before)
		}
	})
}

// The entry in the directory of records moves in the transaction of the take-over. When it was deleted by somebody, or the
// directory was, the take-over does as well.
func TestStaticMovesItsEntry(t *testing.T) {
	const records = "/kiel/groups/g/records"
	inWorld(t, func(w *world) {
		run := func(client string) *member {
			s, end := w.stoppable(client, session.Options{})
			opts := staticOptions(w)
			opts.Records = records
			m := w.run(s, opts)
			m.endSession = end
			m.joined()
			return m
		}
		m := run("a-1")
		for i, spoil := range []func(){
			func() {},
			func() { must(w, w.Srv.Delete(records+"/"+w.Srv.Children(records)[0])) },
			func() {
				must(w, w.Srv.Delete(records+"/"+w.Srv.Children(records)[0]))
				must(w, w.Srv.Delete(records))
			},
		} {
			m.stopOrderly()
			spoil()
			client := "a-" + string(rune('2'+i))
			m = run(client)
			w.wantOwner(client)
			session := strings.TrimPrefix(hexOf(w.sessionOf(client)), "0x")
			if entries := w.Srv.Children(records); len(entries) != 1 || !strings.Contains(entries[0], "."+session+".a") {
				w.Errorf("the entries are %q, want that of %s alone", entries, session)
			}
		}
		must(w, m.stop())
		if entries := w.Srv.Children(records); len(entries) != 0 {
			w.Errorf("the entries %q are left", entries)
		}
	})
}

// The count begins anew after a take-over whose reply was lost, too.
func TestStaticCountsAfterALostReply(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.static("a-1")
		first.joined()
		first.crash("a-1")
		var once sync.Once
		w.Srv.SetHook(func(r *zktest.Request) (a zktest.Action) {
			if r.Op == zktest.OpMulti && touches(r, node("a")) {
				once.Do(func() { a.LoseReply = true })
			}
			return a
		})
		next := w.static("a-2")
		next.joined()
		w.unhook()
		w.wantOwner("a-2")
		if g, _ := w.guard(); g.Taken != 1 {
			w.Errorf("after the take-over: %+v", g)
		}
		time.Sleep(time.Hour)
		if g, _ := w.guard(); g.Taken != 0 {
			w.Errorf("after an hour: %+v", g)
		}
	})
}

// Without a guard, which somebody has deleted with its directory or without, a process that leaves while its successor takes over
// does not delete the successor's znode either, and one without a successor leaves.
func TestLateLeaveWithoutAGuard(t *testing.T) {
	for what, successor := range map[string]bool{"successor": true, "none": false} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				older := w.static("a-1")
				older.joined()
				must(w, w.Srv.Delete(guardPath))
				if !successor {
					must(w, w.Srv.Delete("/kiel/groups/g/static"))
				}
				deleted := false
				var once sync.Once
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if (r.Op == zktest.OpMulti || r.Op == zktest.OpDelete) && r.Client == "a-1" && successor {
						once.Do(func() { w.static("a-2").joined() })
					}
					return zktest.Action{}
				})
				must(w, older.stop())
				stat, stands := w.stands("a")
				deleted = !stands || stat.EphemeralOwner != w.sessionOf("a-1") && successor && stat.EphemeralOwner != w.sessionOf("a-2")
				w.unhook()
				if deleted == successor {
					w.Errorf("the znode is gone: %t", deleted)
				}
			})
		})
	}
}

// A member that may not read its guard any more leaves all the same: its partitions go to the others at once.
func TestLeaveWithAnUnreadableGuard(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-1")
		m.joined()
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == guardPath && r.Op == zktest.OpGetData {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		must(w, m.stop())
		w.unhook()
		w.wantGone("a")
	})
}

// A count below 0, which no member writes, does not spare two processes of one name the waits.
func TestForgedCount(t *testing.T) {
	inWorld(t, func(w *world) {
		older := w.static("a-1")
		older.joined()
		must(w, w.Srv.Set(guardPath, []byte(`{"v":1,"session":"0x1","taken":-20}`)))
		_, before := w.guard()
		w.static("a-2").joined()
		time.Sleep(time.Minute)
		if _, now := w.guard(); now-before > 8 {
			w.Errorf("the name was taken over %d times in a minute", now-before)
		}
	})
}
