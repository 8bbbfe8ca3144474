package sharedset_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
	"github.com/kielgo/kiel/internal/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/sharedset"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/kiel/groups/g/partitions"

// world is a server on a virtual network and the sessions of a test.
type world struct {
	*testing.T
	srv *zktest.Server
	nw  *zktest.Network
}

func newWorld(t *testing.T) *world {
	t.Helper()
	srv, nw := zktest.StartVirtual(t, zktest.Options{})
	return &world{T: t, srv: srv, nw: nw}
}

// session runs a session that connects as the named client, until the test ends.
func (w *world) session(name string) *session.Session {
	w.Helper()
	return recipetest.Session(w, w.nw, name)
}

// set returns a handle on the test's set in a session of its own.
func (w *world) set(name string, opts sharedset.Options) *sharedset.Set {
	w.Helper()
	set, err := sharedset.New(w.session(name), path, opts)
	if err != nil {
		w.Fatal(err)
	}
	return set
}

// running returns a set that is watched.
func (w *world) running() *sharedset.Set {
	w.Helper()
	set := w.set("a", sharedset.Options{})
	recipetest.Run(w, set)
	return set
}

// data returns what the znode holds.
func (w *world) data() string {
	w.Helper()
	data, _, ok := w.srv.Get(path)
	if !ok {
		w.Error("the znode is missing")
	}
	return string(data)
}

func (w *world) wantData(want string) {
	w.Helper()
	if got := w.data(); got != want {
		w.Errorf("the znode holds %s, want %s", got, want)
	}
}

// write writes the znode as an operator would.
func (w *world) write(data string) {
	w.Helper()
	if _, _, ok := w.srv.Get(path); !ok {
		if err := w.srv.Create(path, nil); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.srv.Set(path, []byte(data)); err != nil {
		w.Fatal(err)
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
func (w *world) contenders() []string { return w.srv.Children(path + "/lock") }

func (w *world) wantNoContenders() {
	w.Helper()
	if list := w.contenders(); len(list) > 0 {
		w.Errorf("contenders are left: %q", list)
	}
}
