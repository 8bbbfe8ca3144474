package sharedset_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A reader creates nothing; it sees the znode come, change, go and come back.
func TestRunFollowsTheZnode(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.set("a", sharedset.Options{})
		if s.View() != nil {
			w.Error("a view before the first read")
		}
		recipetest.Run(w, s)
		v := w.wait(s, "of the missing znode", func(v *sharedset.View) bool { return !v.Exists })
		if v.Version != 1 || v.Items != nil || v.Err != nil || v.Mzxid != 0 || v.Incarnation == nil || v.At != time.Now() {
			w.Errorf("first view: %+v", v)
		}
		time.Sleep(time.Minute)
		if _, _, ok := w.Srv.Get("/kiel"); ok {
			w.Error("Run made something")
		}
		start := time.Now()
		w.Write(path, "")
		v = w.waitItems(s)
		if v.Version != 2 || !v.Exists {
			w.Errorf("the empty set: %+v", v)
		}
		w.Write(path, `["t:2","t:10","t:2"]`)
		v = w.waitItems(s, "t:10", "t:2")
		if _, stat, _ := w.Srv.Get(path); v.Version != 3 || v.Mzxid != stat.Mzxid {
			w.Errorf("%+v", v)
		}
		noerr.Must(w, w.Srv.Delete(path))
		v = w.wait(s, "of the deleted znode", func(v *sharedset.View) bool { return !v.Exists })
		if v.Version != 4 || len(v.Items) != 0 || v.Err != nil || v.Mzxid != 0 {
			w.Errorf("deleted: %+v", v)
		}
		w.add(s, 1, "t:1")
		w.waitItems(s, "t:1")
		if d := time.Since(start); d > time.Second {
			w.Errorf("all that took %v: the watches don't work", d)
		}
	})
}

// Versions grow only when the content changes, but the view says when and under which incarnation it was read last.
func TestVersionsGrowOnlyOnChange(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0", "t:1"]`)
		s := w.running()
		first := w.waitItems(s, "t:0", "t:1")
		w.Write(path, `["t:1","t:0"]`)
		synctest.Wait()
		v := s.View()
		if v.Version != first.Version || v.Mzxid <= first.Mzxid {
			w.Errorf("%+v, before %+v", v, first)
		}
		time.Sleep(time.Minute)
		v = s.View()
		if age := time.Since(v.At); v.Version != first.Version || age > 15*time.Second {
			w.Errorf("version %d, read %v ago", v.Version, age)
		}
		w.Srv.KillSession(w.Srv.Sessions()[0].ID)
		v = w.wait(s, "of the next incarnation", func(v *sharedset.View) bool { return v.Incarnation != first.Incarnation })
		if v.Version != first.Version || !slices.Equal(v.Items, first.Items) {
			w.Errorf("%+v", v)
		}
	})
}

// Garbage leaves the last good items in force, until the next good write.
func TestGarbageThenRepair(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "garbage")
		s := w.running()
		v := w.wait(s, "with an error", func(v *sharedset.View) bool { return v.Err != nil })
		if len(v.Items) != 0 || !v.Exists || !errors.Is(v.Err, sharedset.ErrUnreadable) {
			w.Errorf("no good items before: %+v", v)
		}
		w.Write(path, `["t:0"]`)
		good := w.waitItems(s, "t:0")
		w.Write(path, `["t:0", 1]`)
		v = w.wait(s, "with an error", func(v *sharedset.View) bool { return v.Err != nil })
		if !slices.Equal(v.Items, good.Items) || v.Version != good.Version+1 || !v.Exists ||
			!strings.Contains(v.Err.Error(), path) || !strings.Contains(v.Err.Error(), "byte 8") {
			w.Errorf("%+v", v)
		}
		time.Sleep(time.Minute)
		if now := s.View(); now.Version != v.Version {
			w.Errorf("version %d after %d: nothing has changed", now.Version, v.Version)
		}
		w.Write(path, strings.Repeat("[", 1<<20))
		v = w.wait(s, "of the next garbage", func(v2 *sharedset.View) bool { return v2.Version > v.Version })
		if v.Err == nil || !slices.Equal(v.Items, good.Items) {
			w.Errorf("%v, %q", v.Err, v.Items)
		}
		w.Write(path, `["t:0"]`)
		v = w.waitItems(s, "t:0")
		if v.Err != nil {
			w.Error(v.Err)
		}
	})
}

// A read that the ACL denies is an error in the view, and is tried again.
func TestDeniedRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.running()
		w.waitItems(s, "t:0")
		var deny atomic.Bool
		deny.Store(true)
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if deny.Load() && r.Op == zktest.OpGetData && r.Path == path {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		w.Write(path, `["t:0", "t:1"]`)
		v := w.wait(s, "with an error", func(v *sharedset.View) bool { return v.Err != nil })
		if !errors.Is(v.Err, session.ErrNoAuth) || !v.Exists || !slices.Equal(v.Items, []string{"t:0"}) {
			w.Errorf("%+v", v)
		}
		before := w.Srv.Stats().Requests[zktest.OpGetData]
		time.Sleep(time.Minute)
		if n := w.Srv.Stats().Requests[zktest.OpGetData] - before; n < 3 || n > 12 {
			w.Errorf("%d reads in a minute", n)
		}
		deny.Store(false)
		w.waitItems(s, "t:0", "t:1")
	})
}

// A link that breaks, a session that is lost, data that is wiped: the view follows.
func TestRunSurvives(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.running()
		w.waitItems(s, "t:0")
		client := w.Net.Client("a")

		client.Refuse()
		client.Cut()
		time.Sleep(time.Second)
		w.Write(path, `["t:1"]`)
		time.Sleep(time.Second)
		client.Heal()
		w.waitItems(s, "t:1")

		client.BlackHole(zktest.Both)
		w.Write(path, `["t:2"]`)
		time.Sleep(time.Minute)
		if v := s.View(); !slices.Equal(v.Items, []string{"t:1"}) || v.Incarnation.Context().Err() == nil {
			w.Errorf("behind the black hole: %+v", v)
		}
		client.Heal()
		w.waitItems(s, "t:2")

		w.Srv.Restart(true)
		w.wait(s, "of the missing znode", func(v *sharedset.View) bool { return !v.Exists })
		w.Write(path, `["t:3"]`)
		w.waitItems(s, "t:3")
	})
}

// All data is lost and zxids start again: the same mzxid is not the same data.
func TestSameMzxidOfOtherData(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 50 {
			w.Write(path, `["t:0"]`)
		}
		s := w.running()
		old := w.waitItems(s, "t:0")
		client := w.Net.Client("a")
		client.Refuse()
		w.Srv.Restart(true)
		mzxid := int64(0)
		for mzxid < old.Mzxid {
			w.Write(path, `["other"]`)
			_, stat, _ := w.Srv.Get(path)
			mzxid = stat.Mzxid
		}
		if mzxid != old.Mzxid {
			w.Fatalf("mzxid %d, want %d again", mzxid, old.Mzxid)
		}
		client.Heal()
		w.waitItems(s, "other")
	})
}

// Refresh returns when a view is published that was read after a Sync, and ends with its context when there is no Run.
func TestRefresh(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.set("a", sharedset.Options{})
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, why)
		defer cancel()
		if err := s.Refresh(ctx); !errors.Is(err, why) || !strings.Contains(err.Error(), path) {
			w.Errorf("without Run: %v", err)
		}
		recipetest.Run(w, s)
		first := w.waitItems(s, "t:0")
		time.Sleep(time.Second)
		var ops []zktest.Op
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == path {
				ops = append(ops, r.Op)
			}
			return zktest.Action{}
		})
		noerr.Must(w, s.Refresh(w.Context()))
		w.Srv.SetHook(nil)
		if !slices.Equal(ops, []zktest.Op{zktest.OpSync, zktest.OpExists}) {
			w.Errorf("sent %v, want a sync and a look at the metadata", ops)
		}
		if v := s.View(); v.At.Equal(first.At) || v.Version != first.Version {
			w.Errorf("%+v, before %+v", v, first)
		}
		// Asked for while the connection is down, it is answered when there is one again.
		client := w.Net.Client("a")
		client.Refuse()
		client.Cut()
		w.Write(path, `["t:1"]`)
		time.AfterFunc(30*time.Second, client.Heal)
		if err := s.Refresh(w.Context()); err != nil || !slices.Equal(s.View().Items, []string{"t:1"}) {
			w.Errorf("%v, %q", err, s.View().Items)
		}
	})
}

// A set made on servers that lost their data is another one, though they may give it the number of the old one.
func TestMadeAnewWithTheSameNumber(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 20 {
			w.Write(path, `["t:0"]`)
		}
		noerr.Must(w, w.Srv.Delete(path))
		w.Write(path, `["t:0"]`)
		s := w.running()
		old := w.waitItems(s, "t:0")
		client := w.Net.Client("a")
		client.Refuse()
		w.Srv.Restart(true)
		time.Sleep(time.Second)
		for {
			noerr.Must(w, w.Srv.Create(path, []byte(`["t:1"]`)))
			if _, stat, _ := w.Srv.Get(path); stat.Czxid >= old.Czxid {
				break
			}
			noerr.Must(w, w.Srv.Delete(path))
		}
		client.Heal()
		v := w.wait(s, "of the new znode", func(v *sharedset.View) bool { return slices.Contains(v.Items, "t:1") })
		if v.Czxid != old.Czxid || v.SameZnode(old) {
			w.Errorf("%+v, before %+v", v, old)
		}
	})
}

// A set that was deleted and made again with the same items is another one.
func TestMadeAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.running()
		old := w.waitItems(s, "t:0")
		client := w.Net.Client("a")
		client.Refuse()
		client.Cut()
		noerr.Must(w, w.Srv.Delete(path))
		w.Write(path, `["t:0"]`)
		client.Heal()
		v := w.wait(s, "of the new znode", func(v *sharedset.View) bool { return v.Version > old.Version })
		if v.Czxid <= old.Czxid || v.SameZnode(old) || !slices.Equal(v.Items, old.Items) {
			w.Errorf("%+v, before %+v", v, old)
		}
	})
}

func TestRunTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.running()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if err := s.Run(ctx); !errors.Is(err, kiel.ErrRunTwice) || err.Error() != "sharedset: "+path+": run was called before" {
			w.Errorf("while Run runs: %v", err)
		}
		cancel()
		s, err := sharedset.New(w.Session("b"), path, sharedset.Options{})
		noerr.Must(w, err)
		noerr.Want(w, s.Run(ctx))
		if err := s.Run(ctx); !errors.Is(err, kiel.ErrRunTwice) {
			w.Errorf("after Run has ended: %v", err)
		}
	})
}
