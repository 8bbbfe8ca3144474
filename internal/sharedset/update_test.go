package sharedset_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestNewRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	noerr.Must(t, err)
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "kiel_sharedset_updates_total", Help: "another"}))
	tests := map[string]struct {
		s    *session.Session
		path string
		opts sharedset.Options
		want string
	}{
		"no session":        {nil, path, sharedset.Options{}, "session is nil"},
		"path":              {s, "kiel", sharedset.Options{}, `kiel`},
		"timeout":           {s, path, sharedset.Options{LockTimeout: -time.Second}, "option LockTimeout: -1s is less than 0"},
		"identifier":        {s, path, sharedset.Options{Identifier: "\xff"}, "Identifier"},
		"metric's conflict": {s, path, sharedset.Options{Registerer: taken}, "register"},
	}
	for what, tt := range tests {
		if _, err := sharedset.New(tt.s, tt.path, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, tt.want)
		}
	}
}

// The bytes are those of Python's json.dumps of the sorted list; what is there is kept.
func TestAddAndRemove(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		w.add(s, 3, "t:2", "café:0", "t:10", "t:2")
		w.wantData(`["caf\u00e9:0", "t:10", "t:2"]`)
		w.add(s, 1, "t:2", "a:0")
		w.wantData(`["a:0", "caf\u00e9:0", "t:10", "t:2"]`)
		w.remove(s, 2, "t:10", "café:0", "x")
		w.wantData(`["a:0", "t:2"]`)
		w.remove(s, 2, "a:0", "t:2")
		w.wantData(`[]`)
		w.add(s, 1, "😀 \"quoted\" \\ /")
		w.wantData(`["\ud83d\ude00 \"quoted\" \\ /"]`)
		// kiel's order means nothing, and it is left alone when there is nothing to change.
		w.Write(path, `["t:2","t:10" , "t:2"]`)
		w.add(s, 0, "t:10")
		w.remove(s, 0, "x")
		w.wantData(`["t:2","t:10" , "t:2"]`)
		w.add(s, 1, "t:1")
		w.wantData(`["t:1", "t:10", "t:2"]`)
		w.wantNoContenders()
		if _, stat, _ := w.Srv.Get(path); stat.EphemeralOwner != 0 {
			w.Error("the znode is ephemeral")
		}
	})
}

func TestMissingZnode(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		w.remove(s, 0, "t:0")
		if _, _, ok := w.Srv.Get("/kiel"); ok {
			w.Error("Remove made something")
		}
		w.add(s, 0)
		if data, _, ok := w.Srv.Get(path); !ok || data == nil || len(data) > 0 {
			w.Errorf("after Add of nothing: %q, %v", data, ok)
		}
		w.add(s, 1, "t:0")
		w.wantData(`["t:0"]`)
		noerr.Must(w, w.Srv.Delete("/kiel"))
		w.add(s, 1, "t:0")
		w.wantData(`["t:0"]`)
	})
}

// What changes nothing takes no lock and writes nothing.
func TestNothingToDo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.set("a", sharedset.Options{})
		w.add(s, 0)
		w.add(s, 0, "t:0")
		w.remove(s, 0, "t:1")
		w.remove(s, 0)
		if _, stat, _ := w.Srv.Get(path); stat.Version != 1 || stat.NumChildren != 0 {
			w.Errorf("stat %+v", stat)
		}
	})
}

func TestRefusedItems(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		for _, item := range []string{"a\xff", "a\x00", "a\nb", "\x1b[m", "\x7f", "a\u0085", "\xed\xa0\x80"} {
			if n, err := s.Add(w.Context(), "t:0", item); n != 0 || !errors.Is(err, sharedset.ErrInvalidItem) || !strings.Contains(err.Error(), path) {
				w.Errorf("%q: %d, %v", item, n, err)
			}
		}
		if _, _, ok := w.Srv.Get("/kiel"); ok {
			w.Error("something was written")
		}
		// One that another has written stays, and can be removed.
		w.Write(path, `["a\u0000", "b"]`)
		w.add(s, 1, "c")
		w.wantData(`["a\u0000", "b", "c"]`)
		w.remove(s, 1, "a\x00")
		w.wantData(`["b", "c"]`)
	})
}

// What can't be read is never written over.
func TestUnreadableIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		for _, garbage := range []string{"{}", "null", `["a", 1]`, `["a"`, `[["a"]]`, "\ufeff[]", " ", "\x1f\x8b", `["\ud800"]`} {
			w.Write(path, garbage)
			_, err := s.Add(w.Context(), "t:0")
			if !errors.Is(err, sharedset.ErrUnreadable) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "byte ") {
				w.Errorf("add to %q: %v", garbage, err)
			}
			if _, err := s.Remove(w.Context(), "t:0"); !errors.Is(err, sharedset.ErrUnreadable) {
				w.Errorf("remove from %q: %v", garbage, err)
			}
			w.wantData(garbage)
		}
		w.Write(path, "")
		w.add(s, 1, "t:0")
		w.wantData(`["t:0"]`)
		// It became unreadable between the first look and the lock.
		w.hookOnce(func(r *zktest.Request) bool { return r.Op == zktest.OpCreate }, func() { w.Write(path, "{}") })
		if _, err := s.Add(w.Context(), "t:1"); !errors.Is(err, sharedset.ErrUnreadable) {
			w.Error(err)
		}
		w.wantData("{}")
		w.wantNoContenders()
	})
}

// hookOnce does something just before the first request that matches is executed.
func (w *world) hookOnce(match func(*zktest.Request) bool, do func()) {
	var once sync.Once
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if match(r) {
			once.Do(do)
		}
		return zktest.Action{}
	})
}

// isWrite matches the request that writes the set, not the proofs of life.
func isWrite(r *zktest.Request) bool {
	return r.Op == zktest.OpMulti && slices.ContainsFunc(r.Ops, func(r zktest.Request) bool { return r.Op == zktest.OpSetData })
}

func TestTooLarge(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		items := func(from, to int) []string {
			var list []string
			for i := from; i < to; i++ {
				list = append(list, fmt.Sprintf("a-topic-with-some-name:%06d", i)) // 29 bytes, and 4 of JSON
			}
			return list
		}
		w.add(s, 31_000, items(0, 31_000)...)
		before := w.Data(path)
		_, err := s.Add(w.Context(), items(31_000, 33_000)...)
		if !errors.Is(err, sharedset.ErrTooLarge) || !errors.Is(err, session.ErrTooLarge) || strings.Count(err.Error(), path) != 1 {
			w.Fatalf("got %v", err)
		}
		for _, number := range []string{"33000 items", "1089000 bytes", "limit is 1047551", path} {
			if !strings.Contains(err.Error(), number) {
				w.Errorf("%q is not in: %v", number, err)
			}
		}
		w.wantData(before)
		w.wantNoContenders()
		w.add(s, 600, items(31_000, 31_600)...)
	})
}

// A change that comes between our read and our write is not lost, though its writer knows no lock: that is how a Python member
// writes whose session has expired.
func TestConflict(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		reg := prometheus.NewRegistry()
		s := w.set("a", sharedset.Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"group": "g"}, reg)})
		w.hookOnce(isWrite, func() { w.Write(path, `["p:0", "t:0"]`) })
		w.add(s, 1, "t:1")
		w.wantData(`["p:0", "t:0", "t:1"]`)
		w.hookOnce(isWrite, func() { w.Write(path, `["t:0"]`) })
		w.remove(s, 0, "t:1") // the other was faster
		w.wantData(`["t:0"]`)
		w.remove(s, 1, "t:0")
		if _, err := s.Add(w.Context(), "\x00"); err == nil {
			w.Error("added")
		}
		want := `# HELP kiel_sharedset_updates_total Changes of the shared set asked for, by operation and result; a conflict is a write that came too late and was made again.
# TYPE kiel_sharedset_updates_total counter
kiel_sharedset_updates_total{group="g",op="add",result="conflict"} 1
kiel_sharedset_updates_total{group="g",op="add",result="error"} 1
kiel_sharedset_updates_total{group="g",op="add",result="noop"} 0
kiel_sharedset_updates_total{group="g",op="add",result="ok"} 1
kiel_sharedset_updates_total{group="g",op="remove",result="conflict"} 1
kiel_sharedset_updates_total{group="g",op="remove",result="error"} 0
kiel_sharedset_updates_total{group="g",op="remove",result="noop"} 1
kiel_sharedset_updates_total{group="g",op="remove",result="ok"} 1
`
		noerr.Want(w, testutil.GatherAndCompare(reg, strings.NewReader(want)))
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			w.Error(problems, err)
		}
	})
}

// The reply to the write is lost: it is looked at, not made again.
func TestLostReply(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.set("a", sharedset.Options{})
		w.Srv.LoseReply(1, func(r zktest.Request) bool { return isWrite(&r) })
		w.add(s, 2, "t:1", "t:2")
		w.wantData(`["t:0", "t:1", "t:2"]`)
		if _, stat, _ := w.Srv.Get(path); stat.Version != 2 {
			w.Errorf("version %d: written again", stat.Version)
		}
		w.Srv.LoseReply(1, func(r zktest.Request) bool { return isWrite(&r) })
		w.remove(s, 1, "t:1")
		w.wantData(`["t:0", "t:2"]`)
		w.wantNoContenders()
	})
}

// The request itself is lost: it is made again.
func TestLostRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		for i := range 3 {
			cuts := 0
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				cut := isWrite(r) && cuts <= i
				if cut {
					cuts++
				}
				return zktest.Action{Cut: cut}
			})
			w.add(s, 1, fmt.Sprint(i))
		}
		w.wantData(`["0", "1", "2"]`)
		w.wantNoContenders()
	})
}

// The session ends in the middle of a change, its write may or may not have happened.
func TestSessionKilled(t *testing.T) {
	for what, match := range map[string]func(*zktest.Request) bool{
		"before the lock":  func(r *zktest.Request) bool { return r.Op == zktest.OpCreate },
		"in the lock":      func(r *zktest.Request) bool { return r.Op == zktest.OpGetChildren2 },
		"before the write": isWrite,
	} {
		inWorld(t, func(w *world) {
			w.Write(path, `["t:0"]`)
			s := w.set("a", sharedset.Options{})
			w.hookOnce(match, func() { w.Srv.KillSession(w.Srv.Sessions()[0].ID) })
			w.add(s, 1, "t:1")
			if got := w.Data(path); got != `["t:0", "t:1"]` {
				w.Errorf("%s: %s", what, got)
			}
			w.wantNoContenders()
		})
	}
}

// Somebody removes our contender before we write: we must not write without a lock.
func TestLockLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.set("a", sharedset.Options{})
		writes := 0
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if isWrite(r) {
				if writes++; writes == 1 {
					noerr.Want(w, w.Srv.Delete(path+"/lock/"+w.contenders()[0]))
				}
			}
			return zktest.Action{}
		})
		w.add(s, 1, "t:1")
		w.wantData(`["t:0", "t:1"]`)
		if writes != 2 {
			w.Errorf("%d writes, want one that is refused and one more", writes)
		}
		w.wantNoContenders()
	})
}

// Ten members of five processes change the set at once, and somebody without a lock besides: nothing is lost.
func TestConcurrentChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["old:0", "old:1", "old:2", "old:3", "old:4"]`)
		var wg sync.WaitGroup
		var want []string
		for i := range 5 {
			s := w.set(fmt.Sprint("member", i), sharedset.Options{})
			for j := range 2 {
				item := fmt.Sprintf("new:%d%d", i, j)
				want = append(want, item)
				wg.Go(func() {
					w.add(s, 1, item)
					w.add(s, 1, item+"x")
					w.remove(s, 1, item+"x")
				})
			}
			wg.Go(func() { w.remove(s, 1, fmt.Sprint("old:", i)) })
		}
		wg.Wait()
		got, err := sharedset.Decode([]byte(w.Data(path)))
		if err != nil || !slices.Equal(got, want) {
			w.Errorf("got %q, %v, want %q", got, err, want)
		}
		w.wantNoContenders()
	})
}

// Another holds the lock for ever: the error names its znode.
func TestBlocked(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		stale := path + "/lock/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		noerr.Must(w, w.Srv.Create(stale, []byte("host-7")))
		s := w.set("a", sharedset.Options{LockTimeout: 20 * time.Second})
		start := time.Now()
		_, err := s.Add(w.Context(), "t:1")
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !ok || blocked.Blocker != stale || blocked.Identifier != "host-7" || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		if !strings.Contains(err.Error(), stale) || !strings.Contains(err.Error(), "no lock within 20s") {
			w.Errorf("message: %v", err)
		}
		if d := time.Since(start); d != 20*time.Second {
			w.Errorf("after %v", d)
		}
		// The caller's context may end it sooner.
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		start = time.Now()
		_, err = s.Remove(ctx, "t:0")
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != stale || time.Since(start) != time.Second {
			w.Errorf("got %v after %v", err, time.Since(start))
		}
		w.wantData(`["t:0"]`)
		// What changes nothing is not blocked.
		w.add(s, 0, "t:0")
		synctest.Wait()
		if list := w.contenders(); len(list) != 1 {
			w.Errorf("contenders: %q", list)
		}
	})
}

// Without a session every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		s := w.set("a", sharedset.Options{})
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Add":    func(ctx context.Context) error { _, err := s.Add(ctx, "t:0"); return err },
			"Remove": func(ctx context.Context) error { _, err := s.Remove(ctx, "t:0"); return err },
		})
	})
}

// The caller gives up while the write is under way: that is told apart from a change that surely was not made.
func TestGivingUpDuringTheWrite(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.set("a", sharedset.Options{})
		w.hookOnce(isWrite, func() { w.Net.Client("a").BlackHole(zktest.ToClient) })
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := s.Add(ctx, "t:1")
		if !errors.Is(err, session.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		w.Net.Client("a").Heal()
		time.Sleep(15 * time.Second)
		w.wantData(`["t:0", "t:1"]`)
		w.wantNoContenders()
	})
}

// TestChanged: Changed is the set as the last change left it, or found it if nothing had to change.
func TestChanged(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		if v := s.Changed(); v != nil {
			w.Errorf("before the first change: %+v", v)
		}
		check := func(what string, want ...string) {
			w.Helper()
			_, stat, _ := w.Srv.Get(path)
			v := s.Changed()
			if !v.Exists || !slices.Equal(v.Items, want) || v.Czxid != stat.Czxid || v.Ctime != stat.Ctime || v.DataVersion != stat.Version {
				w.Errorf("%s: %+v, want %q and %+v", what, v, want, stat)
			}
		}
		w.add(s, 2, "t:0", "t:1")
		check("added", "t:0", "t:1")
		w.remove(s, 1, "t:0")
		check("removed", "t:1")
		w.Write(path, `["t:1", "t:2"]`)
		w.add(s, 0, "t:2")
		check("there already", "t:1", "t:2")
		w.Srv.LoseReply(1, func(r zktest.Request) bool { return isWrite(&r) })
		w.add(s, 1, "t:3")
		check("the reply was lost", "t:1", "t:2", "t:3")
		before := s.Changed()
		w.Write(path, `["`)
		if _, err := s.Add(w.Context(), "t:4"); err == nil || s.Changed() != before {
			w.Errorf("a change that failed: %v, %+v", err, s.Changed())
		}
	})
}

// RemoveFunc judges the items that are in the set when it is written, so it removes what another has added meanwhile too, and
// keeps what else was added.
func TestRemoveFunc(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		none := func(string) bool { return true }
		if n, err := s.RemoveFunc(w.Context(), none); n != 0 || err != nil {
			w.Errorf("of a set that does not exist: %d, %v", n, err)
		}
		w.add(s, 3, "t:0", "t:1", "u:0")
		judged := 0
		n, err := s.RemoveFunc(w.Context(), func(item string) bool {
			if judged++; judged == 6 { // the first look judges three items, and then those to be written are judged
				w.Write(path, `["t:0", "t:7", "u:0", "u:1"]`)
			}
			return strings.HasPrefix(item, "t:")
		})
		if n != 2 || err != nil {
			w.Errorf("removed %d, %v", n, err)
		}
		w.wantData(`["u:0", "u:1"]`)
		w.Write(path, "garbage")
		if _, err := s.RemoveFunc(w.Context(), none); !errors.Is(err, sharedset.ErrUnreadable) {
			w.Error(err)
		}
		w.wantData("garbage")
		w.wantNoContenders()
	})
}
