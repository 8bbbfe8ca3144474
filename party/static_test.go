package party_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const guardPath = "/kiel/groups/g/static/a"

var staticRecord = []byte("static")

func staticOptions(w *world) party.Options {
	return party.Options{
		Name: "a", Data: staticRecord, Logger: logger(w),
		Static: &party.Static{Guard: guardPath, Is: func(data []byte) bool { return bytes.Equal(data, staticRecord) }},
	}
}

// static runs a static member, as a process of that name.
func (w *world) static(client string) *member {
	w.Helper()
	s, end := w.stoppable(client, session.Options{})
	m := w.run(s, staticOptions(w))
	m.endSession = end
	return m
}

// stopOrderly ends a static member as an orderly stop does.
func (m *member) stopOrderly() {
	m.w.Helper()
	m.Keep()
	must(m.w, m.stop())
	if !m.Kept() {
		m.w.Fatal("the membership was not kept")
	}
	m.session.LetExpire()
	m.endSession()
}

// crash cuts a member off without an end of its session.
func (m *member) crash(client string) {
	m.w.Helper()
	c := m.w.Net.Client(client)
	c.BlackHole(zktest.Both)
	m.w.Cleanup(c.Heal)
}

// guard returns the guard's data and its version.
func (w *world) guard() (g struct {
	Session string
	Taken   int
	Stopped bool
}, version int32,
) {
	w.Helper()
	data, stat, ok := w.Srv.Get(guardPath)
	if !ok {
		w.Fatal("there is no guard")
	}
	must(w, json.Unmarshal(data, &g))
	return g, stat.Version
}

// watchNames has each listing that a reader gets checked: a name that was there is always there. It returns how often the
// member's znode was made.
func (w *world) alwaysThere(observer *member, name string) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for v := range observer.Updates(ctx) {
			if _, ok := v.Member(name); !ok {
				w.Errorf("%s is missing in %s", name, show(v))
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (w *world) wantOwner(client string) {
	w.Helper()
	stat, ok := w.stands("a")
	if !ok {
		w.Fatalf("there is no znode a, want that of %s", client)
	}
	if want := w.sessionOf(client); stat.EphemeralOwner != want {
		w.Errorf("a is owned by %#x, want %s with %#x", stat.EphemeralOwner, client, want)
	}
	if stat.Version != 1 || stat.Czxid != stat.Mzxid {
		w.Errorf("the znode %+v is not of one transaction that wrote it once more", stat)
	}
}

// A static member that stops leaves its znode. Within the session's timeout the next process of the name takes it over, and in no
// view the name is missing. The guard says who has the name.
func TestStaticRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.member("b")
		first := w.static("a-1")
		first.joined()
		observer := w.observe()
		observer.awaitNames(time.Second, "a", "b")
		stop := w.alwaysThere(observer, "a")
		defer stop()
		for _, client := range []string{"a-2", "a-3"} {
			first.stopOrderly()
			time.Sleep(timeout - time.Second)
			start := time.Now()
			next := w.static(client)
			next.joined()
			if took := time.Since(start); took > 100*time.Millisecond {
				w.Errorf("joined after %v", took)
			}
			w.wantOwner(client)
			if g, _ := w.guard(); g.Stopped || g.Taken != 0 {
				w.Errorf("guard: %+v", g)
			}
			first = next
		}
		time.Sleep(10 * timeout)
		w.wantOwner("a-3")
		first.calm()
	})
}

// Without a next process the znode goes with the session.
func TestStaticStopsForGood(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-1")
		m.joined()
		m.stopOrderly()
		time.Sleep(timeout - time.Second)
		if _, ok := w.stands("a"); !ok {
			w.Error("the membership ended with the process")
		}
		time.Sleep(time.Second + tick + 100*time.Millisecond)
		w.wantGone("a")
		next := w.static("a-2") // the guard, which stays, is no obstacle
		next.joined()
		w.wantOwner("a-2")
	})
}

// A static member that ends without Keep leaves, and its successor joins as anybody does.
func TestStaticLeaves(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-1")
		m.joined()
		must(w, m.stop())
		if m.Kept() {
			w.Error("kept")
		}
		w.wantGone("a")
		if _, _, ok := w.Srv.Get(guardPath); !ok {
			w.Error("the guard was deleted")
		}
	})
}

// A process that has crashed is succeeded at once.
func TestStaticCrash(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-1")
		m.joined()
		observer := w.observe()
		observer.awaitNames(time.Second, "a")
		defer w.alwaysThere(observer, "a")()
		m.crash("a-1")
		next := w.static("a-2")
		start := time.Now()
		next.joined()
		if took := time.Since(start); took > 100*time.Millisecond {
			w.Errorf("joined after %v", took)
		}
		w.wantOwner("a-2")
		if g, _ := w.guard(); g.Taken != 1 {
			w.Errorf("guard: %+v", g)
		}
		time.Sleep(2 * timeout) // the old session ends
		w.wantOwner("a-2")
	})
}

// The newer one of two processes has the name. The older one learns of it, is no member any more, and says which sessions and
// processes there are. It waits, longer each time, so that two that live on take the name from each other a few times alone.
func TestTwoStaticProcesses(t *testing.T) {
	inWorld(t, func(w *world) {
		older := w.static("a-1")
		older.joined()
		newer := w.static("a-2")
		newer.joined()
		w.wantOwner("a-2")
		v, _ := older.await(time.Second, "its loss", func(v *party.View) bool { return !v.Joined && v.NameHeld != nil })
		for _, part := range []string{hexOf(w.sessionOf("a-1")), hexOf(w.sessionOf("a-2")), "process"} {
			if !strings.Contains(v.NameHeld.Error(), part) {
				w.Errorf("%v: lacks %s", v.NameHeld, part)
			}
		}
		wantErr(w, v.NameHeld, party.ErrNameHeld)
		_, before := w.guard()
		n := after(6*time.Hour, func() int32 { _, now := w.guard(); return now - before }, 15)
		if n < 10 || n > 15 {
			w.Errorf("the name was taken over %d times in six hours or less", n)
		}
		if older.err != nil || newer.err != nil {
			w.Errorf("Run ended: %v, %v", older.err, newer.err)
		}
		if older.View().Joined == newer.View().Joined {
			w.Errorf("both joined: %v", older.View().Joined)
		}
	})
}

// after returns what count returns after so long, or as soon as it is more than most.
func after(d time.Duration, count func() int32, most int32) (n int32) {
	for end := time.Now().Add(d); n <= most && time.Now().Before(end); n = count() {
		time.Sleep(time.Minute)
	}
	return n
}

func hexOf(session int64) string {
	return "0x" + strings.TrimLeft(string(appendHex(nil, uint64(session))), "0")
}

func appendHex(b []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return b
}

// One that waits for its name has it at once when the other one stops, or when its session has expired.
func TestStaticWaitEnds(t *testing.T) {
	for how, end := range map[string]func(m *member){
		"stopped": func(m *member) { m.stopOrderly() },
		"left":    func(m *member) { must(m.w, m.stop()) },
		"crashed": func(m *member) { m.crash("a-2") },
	} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				older := w.static("a-1")
				older.joined()
				newer := w.static("a-2")
				for newer.joined(); ; {
					time.Sleep(time.Second)
					if g, _ := w.guard(); g.Taken >= 9 && newer.View().Joined {
						break
					}
				}
				end(newer)
				limit := 100 * time.Millisecond
				if how == "crashed" {
					limit = timeout + tick + 100*time.Millisecond
				}
				older.await(limit, "itself", func(v *party.View) bool { return v.Joined })
				w.wantOwner("a-1")
			})
		})
	}
}

// A process that has had its name for long counts as one that stays: the next crash is followed by a take-over at once.
func TestStaticWaitsBeginAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		last := w.static("a-0")
		last.joined()
		for i, client := range []string{"a-1", "a-2", "a-3"} {
			last.crash("a-" + string(rune('0'+i)))
			last = w.static(client)
			last.await(5*time.Second, "itself", func(v *party.View) bool { return v.Joined })
		}
		if g, _ := w.guard(); g.Taken != 3 {
			w.Errorf("guard: %+v", g)
		}
		time.Sleep(11 * time.Minute)
		if g, _ := w.guard(); g.Taken != 0 {
			w.Errorf("guard: %+v", g)
		}
		last.crash("a-3")
		start := time.Now()
		w.static("a-4").joined()
		if took := time.Since(start); took > 100*time.Millisecond {
			w.Errorf("joined after %v", took)
		}
	})
}

// Two newcomers have read the same guard. One of them gets the name, and the other one leaves its znode alone.
func TestTwoNewcomersRace(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-0")
		m.joined()
		m.stopOrderly()
		var mu sync.Mutex
		arrived, made := 0, 0
		both := make(chan struct{})
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op != zktest.OpMulti || !touches(r, node("a")) {
				return zktest.Action{}
			}
			mu.Lock()
			arrived++
			if arrived == 2 {
				close(both)
			}
			made++
			mu.Unlock()
			<-both
			return zktest.Action{}
		})
		_, before := w.guard()
		one, two := w.static("a-1"), w.static("a-2")
		time.Sleep(500 * time.Millisecond)
		if one.View().Joined == two.View().Joined {
			w.Fatalf("joined: %v and %v", one.View().Joined, two.View().Joined)
		}
		if _, after := w.guard(); after != before+1 {
			w.Errorf("the guard was written %d times", after-before)
		}
		if made != 2 {
			w.Errorf("%d attempts", made)
		}
		w.unhook()
	})
}

// touches reports whether a request is about a path.
func touches(r *zktest.Request, path string) bool {
	for i := range r.Ops {
		if r.Ops[i].Path == path && r.Ops[i].Op != zktest.OpCheck {
			return true
		}
	}
	return false
}

// Znodes of members that are not static, of Python's among them, are never taken over: the name is waited for as by any member.
func TestStaticTakesNoOthersZnode(t *testing.T) {
	for what, data := range map[string]string{"plain": "record", "python": "", "looks static": string(staticRecord)} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				end := w.hold("other", node("a"), data)
				m := w.static("a-1")
				m.await(time.Second, "the other", func(v *party.View) bool { return v.NameHeld != nil })
				w.wantSession("other")
				<-m.done
				wantErr(w, m.err, party.ErrNameTaken)
				w.wantSession("other")
				end()
			})
		})
	}
}

func (w *world) wantSession(client string) {
	w.Helper()
	if stat, ok := w.stands("a"); !ok || stat.EphemeralOwner != w.sessionOf(client) {
		w.Errorf("%v: the znode %+v is not that of %s", ok, stat, client)
	}
}

// Between the reading and the take-over the static member's znode goes and a Python member of the name joins: its znode stays.
func TestStaticTakeoverMeetsAnother(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-0")
		m.joined()
		m.stopOrderly()
		python := w.session("python")
		inc := incarnation(w, python)
		var once sync.Once
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti && r.Client == "a-1" && touches(r, node("a")) {
				once.Do(func() {
					if _, err := inc.Multi(w.Context(), session.DeleteOp(node("a"), -1), session.CreateOp(node("a"), nil, session.Ephemeral)); err != nil {
						w.Error(err)
					}
				})
			}
			return zktest.Action{}
		})
		next := w.static("a-1")
		next.await(time.Second, "the other", func(v *party.View) bool { return v.NameHeld != nil })
		w.unhook()
		w.wantSession("python")
		<-next.done
		wantErr(w, next.err, party.ErrNameTaken)
	})
}

// A Python member that replaces a static member's znode ends Run, as it does that of any member.
func TestStaticReplacedByPython(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-1")
		m.joined()
		w.namesake("a")
		<-m.done
		wantErr(w, m.err, party.ErrNameTaken)
	})
}

// A record that somebody else changes in place is put right, with a znode that is static again.
func TestStaticRecordIsMended(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.static("a-1")
		was := m.joined()
		must(w, w.Srv.Set(node("a"), []byte("other")))
		m.await(2*timeout, "another znode", func(v *party.View) bool {
			own, _ := v.Member("a")
			return v.Joined && own.Czxid != was
		})
		w.wantOwner("a-1")
	})
}

func TestStaticOptions(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("s")
		for what, change := range map[string]func(o *party.Options){
			"no name":   func(o *party.Options) { o.Name, o.Data = "", nil },
			"no record": func(o *party.Options) { o.Data = nil },
			"no Is":     func(o *party.Options) { o.Static = &party.Static{Guard: guardPath} },
			"no guard":  func(o *party.Options) { o.Static = &party.Static{Is: o.Static.Is} },
		} {
			o := staticOptions(w)
			change(&o)
			if _, err := party.New(s, directory, o); err == nil || errors.Is(err, party.ErrNameTaken) {
				w.Errorf("%s: %v", what, err)
			}
		}
	})
}
