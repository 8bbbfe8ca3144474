package watched_test

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

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/t"

// view is the text of the znode, and how many views there were.
type view struct {
	text   string
	err    error
	inc    *session.Incarnation
	number int
}

// world is a server on a virtual network, in a bubble, and the requests for the znode.
type world struct {
	*recipetest.World

	mu    sync.Mutex
	ops   []zktest.Op
	fault zktest.Error // of reads
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(inner *recipetest.World) {
		w := &world{World: inner}
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			w.mu.Lock()
			defer w.mu.Unlock()
			if r.Path != path {
				return zktest.Action{}
			}
			w.ops = append(w.ops, r.Op)
			if r.Op == zktest.OpSync {
				return zktest.Action{}
			}
			return zktest.Action{Err: w.fault}
		})
		f(w.T, w)
	})
}

// requests returns those since it was called last.
func (w *world) requests() []zktest.Op {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	ops := w.ops
	w.ops = nil
	return ops
}

func (w *world) refuse(err zktest.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = err
}

func reader(s *session.Session) *watched.Reader[view] {
	return watched.New(watched.Options[view]{
		Session: s, Path: path, Package: "test",
		Look: func(ctx context.Context, inc *session.Incarnation, _ bool) (*view, *session.Watch, error) {
			data, _, watch, err := inc.GetW(ctx, path)
			if !errors.Is(err, session.ErrNoNode) {
				return &view{text: string(data)}, watch, err
			}
			_, _, watch, err = inc.ExistsW(ctx, path)
			return &view{text: "none"}, watch, err
		},
		Refused: func(err error) *view { return &view{err: err} },
		Complete: func(_ context.Context, inc *session.Incarnation, before, v *view) {
			v.inc, v.number = inc, 1
			if before != nil {
				v.number = before.number + 1
			}
		},
		Newer: func(before, v *view) bool { return before.text != v.text || before.inc != v.inc },
	})
}

// running returns one that has read.
func (w *world) running(name string) *watched.Reader[view] {
	w.Helper()
	r := reader(w.Session(name))
	recipetest.Run(w, r)
	w.until(r, func(*view) bool { return true })
	return r
}

// until returns the first view that is as wanted.
func (w *world) until(r *watched.Reader[view], ok func(*view) bool) *view {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	for v := range r.Updates(ctx) {
		if ok(v) {
			return v
		}
	}
	w.Fatalf("no such view within a minute, the last is %+v", r.View())
	return nil
}

func (w *world) untilText(r *watched.Reader[view], text string) *view {
	w.Helper()
	return w.until(r, func(v *view) bool { return v.text == text })
}

// Each change is seen at once, by its watch; a view stays as it was.
func TestChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := reader(w.Session("a"))
		if v := r.View(); v != nil {
			t.Errorf("view before the first: %+v", v)
		}
		recipetest.Run(w, r)
		start := time.Now()
		w.untilText(r, "none")
		w.Write(path, "one")
		one := w.untilText(r, "one")
		w.Write(path, "two")
		w.untilText(r, "two")
		noerr.Must(t, w.Srv.Delete(path))
		last := w.untilText(r, "none")
		if d := time.Since(start); d > time.Second {
			t.Errorf("took %v", d)
		}
		if one.text != "one" || r.View() != last || last.number != one.number+2 {
			t.Errorf("%+v, then %+v, now %+v", one, last, r.View())
		}
	})
}

// Without any hint it is read again within a session timeout, and Updates yields nothing that is not newer.
func TestReadsWithoutAHint(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, "one")
		r := w.running("a")
		first := r.View()
		w.requests()
		time.Sleep(first.inc.Timeout())
		if ops := w.requests(); len(ops) == 0 {
			t.Error("not read within a session timeout")
		}
		if v := r.View(); v == first || v.number == first.number {
			t.Error("the view is still the first")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*first.inc.Timeout())
		defer cancel()
		n := 0
		for range r.Updates(ctx) {
			n++
		}
		if n != 1 {
			t.Errorf("yielded %d views of one text", n)
		}
	})
}

// Who is slow misses some, but never the last; and each that it gets is newer than the one before.
func TestSlowCaller(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, "000")
		r := w.running("a")
		go func() {
			for i := range 100 {
				time.Sleep(7 * time.Millisecond)
				w.Write(path, fmt.Sprintf("%03d", i+1))
			}
		}()
		var seen []string
		for v := range r.Updates(t.Context()) {
			seen = append(seen, v.text)
			if v.text == "100" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(seen) || len(seen) < 5 || len(seen) > 50 {
			t.Errorf("saw %v", seen)
		}
	})
}

// Each incarnation reads anew, and Updates says so.
func TestNextIncarnation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, "one")
		r := w.running("a")
		first := r.View()
		w.Srv.KillSession(first.inc.SessionID())
		second := w.until(r, func(v *view) bool { return v.inc != first.inc })
		if second.text != "one" {
			t.Errorf("%+v", second)
		}
	})
}

// What can't be read is a view, with an error that says what and where, and is tried again within a session timeout.
func TestRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, "one")
		w.refuse(zktest.ErrNoAuth)
		r := w.running("a")
		v := r.View()
		if !errors.Is(v.err, session.ErrNoAuth) || !strings.HasPrefix(v.err.Error(), "test: read "+path+": ") {
			t.Errorf("view with error %v", v.err)
		}
		time.Sleep(v.inc.Timeout() / 2)
		w.refuse(0)
		start := time.Now()
		w.untilText(r, "one")
		if d := time.Since(start); d > v.inc.Timeout() {
			t.Errorf("read %v after it could be", d)
		}
	})
}

// Refresh returns when what was there after it was called is published: it has the server brought up to date first.
func TestRefresh(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, "one")
		r := w.running("a")
		before := r.View()
		w.requests()
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				noerr.Want(t, r.Refresh(t.Context()))
				if v := r.View(); v.number <= before.number {
					t.Errorf("still view %d", v.number)
				}
			})
		}
		callers.Wait()
		ops := w.requests()
		if len(ops) < 2 || ops[0] != zktest.OpSync || ops[1] != zktest.OpGetData || len(ops) > 6 {
			t.Errorf("requests %v", ops)
		}
	})
}

// A Refresh that a broken connection interrupts is answered after the next read.
func TestRefreshAcrossALostConnection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, "one")
		r := w.running("a")
		w.Net.Client("a").BlackHole(zktest.Both)
		done := make(chan error, 1)
		go func() { done <- r.Refresh(t.Context()) }()
		time.Sleep(time.Second)
		w.Write(path, "two")
		w.Net.Client("a").Heal()
		if err := <-done; err != nil || r.View().text != "two" {
			t.Errorf("%v, view %+v", err, r.View())
		}
	})
}

func TestRefreshEndsWithItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := reader(w.Session("a")) // nothing runs
		recipetest.EndWithTheirContext(t, path, map[string]func(context.Context) error{"Refresh": r.Refresh})
	})
}

// Run returns nil when it is asked to end, in whatever state, and an error when the session has ended.
func TestRunEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, stop := recipetest.Stoppable(w, w.Net, "a", session.Options{})
		run := func(ctx context.Context) chan error {
			r := reader(s)
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			return ended
		}
		for state, prepare := range map[string]func(){
			"watching": func() {},
			"refused":  func() { w.refuse(zktest.ErrNoAuth) },
			"without a session": func() {
				w.Net.Client("a").BlackHole(zktest.Both)
				time.Sleep(time.Minute)
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := run(ctx)
			prepare()
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", state, err)
			}
			w.refuse(0)
			w.Net.Client("a").Heal()
		}
		ended := run(t.Context())
		stop()
		if err := <-ended; !errors.Is(err, session.ErrClosed) || !strings.Contains(err.Error(), path) {
			t.Errorf("of a closed session: %v", err)
		}
	})
}

// TestFirstLookOfASession: what a new session reads is not older than what the one before it read, since a Sync comes first.
func TestFirstLookOfASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, "one")
		r := w.running("a")
		first := []zktest.Op{zktest.OpSync, zktest.OpGetData}
		if ops := w.requests(); !slices.Equal(ops, first) {
			t.Error("first session:", ops)
		}
		w.Srv.CutAll()
		time.Sleep(time.Second)
		if ops := w.requests(); len(ops) == 0 || slices.Contains(ops, zktest.OpSync) {
			t.Error("another connection of the same session:", ops)
		}
		old := r.View().inc
		w.Srv.KillSession(old.SessionID())
		w.until(r, func(v *view) bool { return v.inc != old })
		if ops := w.requests(); !slices.Equal(ops, first) {
			t.Error("next session:", ops)
		}
	})
}

// The Sync that comes before the first look is made again when it was refused: else a server that lags shows old data.
func TestSyncThatWasRefusedIsMadeAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		noerr.Must(t, errors.Join(w.Srv.Create("/t", []byte("new")), w.Srv.Create("/behind", []byte("old"))))
		var mu sync.Mutex
		syncs := 0
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.Path == path && r.Op == zktest.OpSync:
				syncs++
				if syncs == 1 {
					return zktest.Action{Err: zktest.ErrNoAuth}
				}
			case r.Path == path && r.Op == zktest.OpGetData && syncs < 2:
				r.Path = "/behind"
			}
			return zktest.Action{}
		})
		if v := w.until(w.running("a"), func(v *view) bool { return v.err == nil }); v.text != "new" {
			t.Errorf("the first view has %q", v.text)
		}
	})
}
