package session_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// watches sets one watch of each kind on /a.
func watches(t *testing.T, inc *session.Incarnation) (data, children, exists *session.Watch) {
	t.Helper()
	_, _, data, err1 := inc.GetW(t.Context(), "/a")
	_, _, children, err2 := inc.ChildrenW(t.Context(), "/a")
	_, _, exists, err3 := inc.ExistsW(t.Context(), "/a")
	noerr.Must(t, errors.Join(err1, err2, err3))
	return data, children, exists
}

func TestWatchWakesOnChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		for name, c := range map[string]struct {
			change                 func() error
			data, children, exists bool // who wakes
		}{
			"set":          {func() error { return w.srv.Set("/a", []byte("x")) }, true, false, true},
			"child":        {func() error { return w.srv.Create("/a/b", nil) }, false, true, false},
			"child's data": {func() error { return errors.Join(w.srv.Create("/a/c/d", nil), w.srv.Set("/a/c/d", nil)) }, false, true, false},
			"delete":       {func() error { return w.srv.Delete("/a") }, true, true, true},
		} {
			noerr.Must(t, w.srv.Create("/a", nil))
			data, children, exists := watches(t, inc)
			noerr.Must(t, c.change())
			synctest.Wait()
			if got := [3]bool{!open(data.C()), !open(children.C()), !open(exists.C())}; got != [3]bool{c.data, c.children, c.exists} {
				t.Errorf("%s: data, children and exists watch woke: %v", name, got)
			}
			for _, watch := range []*session.Watch{data, children, exists} {
				if woken := !open(watch.C()); watch.Deleted() != (name == "delete") || watch.Changed() != woken {
					t.Errorf("%s: woken: %v, changed: %v, deleted: %v", name, woken, watch.Changed(), watch.Deleted())
				}
			}
			_ = w.srv.Delete("/a")
			synctest.Wait()
		}

		found, _, exists, err := inc.ExistsW(t.Context(), "/a")
		if err != nil || found {
			t.Fatal(found, err)
		}
		synctest.Wait()
		if !open(exists.C()) {
			t.Error("woken without a reason")
		}
		noerr.Must(t, w.srv.Create("/a", nil))
		synctest.Wait()
		if open(exists.C()) {
			t.Error("not woken by creation")
		}

		if _, _, watch, err := inc.GetW(t.Context(), "/nothing"); !errors.Is(err, session.ErrNoNode) || watch != nil {
			t.Errorf("GetW of nothing: %v, %v", watch, err)
		}
		if n := session.Waits(inc); n != 0 {
			t.Errorf("%d waits left", n)
		}
	})
}

func TestWatchWakesOnDisconnect(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		noerr.Must(t, w.srv.Create("/a", nil))
		data, children, exists := watches(t, inc)
		m.link.Cut()
		for _, watch := range []*session.Watch{data, children, exists} {
			if took := elapsed(t, "watch", watch.C(), time.Second); took > 0 {
				t.Errorf("woken after %v", took)
			}
			if watch.Deleted() || watch.Changed() {
				t.Error("a cut connection counts as a change")
			}
		}
		if !inc.Trusted() {
			t.Error("a cut connection ended trust")
		}
		// The next reads and watches are on the new connection.
		data, _, _ = watches(t, inc)
		noerr.Must(t, w.srv.Set("/a", []byte("x")))
		elapsed(t, "watch on the new connection", data.C(), time.Second)
	})
}

func TestWatchWakesOnTheEndOfTrust(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		noerr.Must(t, w.srv.Create("/a", nil))
		proofsFail(w, true)
		// After T/2 without proofs the connection is dropped, after 2/3 T trust ends. These are set in between.
		time.Sleep(timeout/2 + 100*time.Millisecond)
		data, children, exists := watches(t, inc)
		for _, watch := range []*session.Watch{data, children, exists} {
			elapsed(t, "watch", watch.C(), timeout/6)
		}
		<-inc.Context().Done()
		late, _, _ := watches(t, inc)
		if open(late.C()) {
			t.Error("the watch of an incarnation that has ended does not say so")
		}
	})
}

// proofsFail makes the server keep the answers to multis back, like a leader that has lost its quorum.
func proofsFail(w *world, on bool) {
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		return zktest.Action{Ignore: on && r.Op == zktest.OpMulti}
	})
}

// A watch without any hint wakes within T; those that were set together, not together.
func TestWatchWakesWithinT(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		var woken []time.Duration
		var mu sync.Mutex
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 1000 {
			_, _, watch, err := inc.ExistsW(t.Context(), fmt.Sprint("/", i))
			noerr.Must(t, err)
			wg.Go(func() {
				<-watch.C()
				mu.Lock()
				defer mu.Unlock()
				woken = append(woken, time.Since(start))
			})
		}
		wg.Wait()
		first, last := slices.Min(woken), slices.Max(woken)
		if last > timeout {
			t.Errorf("woken after %v, later than T of %v", last, timeout)
		}
		if first < timeout*4/5 || first > timeout*17/20 || last < timeout*19/20 {
			t.Errorf("woken after %v to %v, want 4/5 T to T of %v", first, last, timeout)
		}
	})
}

// A watch that the server has forgotten is set again by the next read.
func TestWatchHealsItself(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		lost := false
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Watch && !lost {
				lost, r.Watch = true, false
			}
			return zktest.Action{}
		})
		_, _, first, err := inc.ExistsW(t.Context(), "/a")
		if err != nil || !lost {
			t.Fatal(err, lost)
		}
		noerr.Must(t, w.srv.Create("/a", nil))
		time.Sleep(timeout / 2)
		if !open(first.C()) {
			t.Fatal("the watch was not lost; this test tests nothing")
		}
		// Somebody else reads the same.
		found, _, second, err := inc.ExistsW(t.Context(), "/a")
		if err != nil || !found {
			t.Fatal(found, err)
		}
		noerr.Must(t, w.srv.Set("/a", []byte("x")))
		synctest.Wait()
		if open(first.C()) || open(second.C()) {
			t.Error("not woken after the second read")
		}
	})
}

func TestWatchesDoNotPileUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		noerr.Must(t, w.srv.Create("/a", nil))
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 10_000 {
			noerr.Last(t)(inc.ChildrenW(t.Context(), "/a"))
		}
		_, _, watch, err := inc.ChildrenW(t.Context(), "/a")
		noerr.Must(t, err)
		if n := w.srv.Stats().Watches; n != 1 {
			t.Errorf("%d watches on the server", n)
		}
		if n := session.Waits(inc); n != 1 {
			t.Errorf("%d waits", n)
		}
		if n := runtime.NumGoroutine(); n > before+2 {
			t.Errorf("%d goroutines, before %d", n, before)
		}
		for i := range 100 {
			_, _, watch, err := inc.ExistsW(t.Context(), fmt.Sprintf("/b%d", i))
			noerr.Must(t, err)
			watch.Stop()
			watch.Stop()
		}
		if n := session.Waits(inc); n != 1 {
			t.Errorf("%d waits after Stop", n)
		}
		noerr.Must(t, w.srv.Create("/a/b", nil))
		elapsed(t, "watch", watch.C(), time.Second)
	})
}

// A lasting watch waits for a change however long it takes, beside one that does not last.
func TestLastingWatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		children := func() *session.Watch {
			t.Helper()
			_, _, watch, err := inc.ChildrenLasting(t.Context(), "/")
			noerr.Must(t, err)
			return watch
		}
		lasting := children()
		_, _, short, err := inc.ChildrenW(t.Context(), "/")
		noerr.Must(t, err)
		if n := w.srv.Stats().Watches; n != 1 {
			t.Errorf("%d watches on the server", n)
		}
		elapsed(t, "short watch", short.C(), timeout)
		time.Sleep(10 * timeout)
		if !open(lasting.C()) || lasting.Changed() {
			t.Error("ended without a reason")
		}
		again := children()
		noerr.Must(t, w.srv.Create("/b", nil))
		for _, watch := range []*session.Watch{lasting, again} {
			if took := elapsed(t, "lasting watch", watch.C(), time.Second); took > 0 || !watch.Changed() || watch.Deleted() {
				t.Errorf("woken after %v, changed: %v, deleted: %v", took, watch.Changed(), watch.Deleted())
			}
		}
		lasting = children()
		_, _, short, err = inc.ChildrenW(t.Context(), "/")
		noerr.Must(t, err)
		noerr.Must(t, w.srv.Create("/c", nil))
		elapsed(t, "lasting watch", lasting.C(), time.Second)
		elapsed(t, "short watch", short.C(), time.Second)

		lasting = children()
		m.link.Cut()
		if took := elapsed(t, "lasting watch", lasting.C(), time.Second); took > 0 || lasting.Changed() {
			t.Errorf("woken after %v by a cut connection, changed: %v", took, lasting.Changed())
		}
		lasting, again = children(), children()
		again.Stop()
		w.srv.KillSession(inc.SessionID())
		elapsed(t, "lasting watch", lasting.C(), timeout)
		if n := session.Waits(inc); n != 0 {
			t.Errorf("%d waits left", n)
		}
	})
}
