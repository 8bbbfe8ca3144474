package sharedset_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/kiel/groups/g/partitions"

// world has what tests of sets do.
type world struct{ *recipetest.World }

// inWorld runs a test in a bubble, with a world of its own.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

// set returns a handle on the test's set in a session of its own.
func (w *world) set(name string, opts sharedset.Options) *sharedset.Set {
	w.Helper()
	set, err := sharedset.New(w.Session(name), path, opts)
	noerr.Must(w, err)
	return set
}

// running returns a set that is watched.
func (w *world) running() *sharedset.Set {
	w.Helper()
	return w.runningIn(w.Session("a"))
}

func (w *world) runningIn(s *session.Session) *sharedset.Set {
	w.Helper()
	set, err := sharedset.New(s, path, sharedset.Options{})
	noerr.Must(w, err)
	recipetest.Run(w, set)
	return set
}

func (w *world) wantData(want string) {
	w.Helper()
	if got := w.Data(path); got != want {
		w.Errorf("the znode holds %s, want %s", got, want)
	}
}

func (w *world) add(s *sharedset.Set, want int, items ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	if n, err := s.Add(ctx, items...); err != nil || n != want {
		w.Errorf("Add(%.100q) = %d, %v, want %d", items, n, err, want)
	}
}

func (w *world) remove(s *sharedset.Set, want int, items ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	if n, err := s.Remove(ctx, items...); err != nil || n != want {
		w.Errorf("Remove(%.100q) = %d, %v, want %d", items, n, err, want)
	}
}

// wait returns the first view for which ok holds.
func (w *world) wait(s *sharedset.Set, what string, ok func(*sharedset.View) bool) *sharedset.View {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	for v := range s.Updates(ctx) {
		if ok(v) {
			return v
		}
	}
	w.Fatalf("no view %s; the last is %+v", what, s.View())
	return nil
}

func (w *world) waitItems(s *sharedset.Set, want ...string) *sharedset.View {
	w.Helper()
	return w.wait(s, "with the items wanted", func(v *sharedset.View) bool {
		return v.Err == nil && v.Exists && slices.Equal(v.Items, want)
	})
}

// contenders returns the children of the set's lock.
func (w *world) contenders() []string { return w.Srv.Children(path + "/lock") }

func (w *world) wantNoContenders() {
	w.Helper()
	if list := w.contenders(); len(list) > 0 {
		w.Errorf("contenders are left: %q", list)
	}
}
