package seqnode_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		a, b := w.node(s, "first"), w.node(s, "second")
		if !strings.HasSuffix(a.Path(), "-n-0000000000") || !strings.HasSuffix(b.Path(), "-n-0000000001") ||
			a.Path() != "/d/"+w.Srv.Children("/d")[0] && a.Path() != "/d/"+w.Srv.Children("/d")[1] {
			t.Errorf("%s, %s, children %q", a.Path(), b.Path(), w.Srv.Children("/d"))
		}
		inc, err := a.Wait(t.Context())
		if err != nil || inc != s.Current() {
			t.Errorf("the first: %v, %v", inc, err)
		}
		why := errors.New("busy")
		_, err = b.First(t.Context(), why)
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !ok || !errors.Is(err, why) || blocked.Blocker != a.Path() || blocked.Identifier != "first" || blocked.Detail != "1 ahead" ||
			!strings.Contains(err.Error(), a.Path()) {
			t.Errorf("the second: %v", err)
		}
		noerr.Want(t, a.Remove(t.Context()))
		if inc, err = b.First(t.Context(), why); err != nil || inc != s.Current() {
			t.Errorf("the second, then: %v, %v", inc, err)
		}
		noerr.Want(t, b.Remove(t.Context()))
		if list := w.Srv.Children("/d"); len(list) > 0 {
			t.Errorf("left: %q", list)
		}
	})
}

// A node that was removed is not first, though nothing stands in front of it.
func TestRemovedNodeIsNotFirst(t *testing.T) {
	for _, path := range []string{"the node", "/d"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			n := w.node(w.session(), "")
			if path == "the node" {
				path = n.Path()
			}
			noerr.Must(t, w.Srv.Delete(path))
			if _, err := n.Wait(t.Context()); !errors.Is(err, seqnode.ErrGone) {
				t.Errorf("Wait: %v", err)
			}
			if _, err := n.First(t.Context(), errors.New("busy")); !errors.Is(err, seqnode.ErrGone) {
				t.Errorf("First: %v", err)
			}
		})
	}
}

// A list that shows the node as first arrives after the end of trust: the node is first only when the next incarnation shows it.
func TestAnswerThatComesAfterTheEndOfTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		n := w.node(s, "")
		client := w.Net.Client("a")
		lists := 0
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetChildren2 {
				if lists++; lists == 1 {
					client.BlackHole(zktest.ToClient)
				}
			}
			return zktest.Action{}
		})
		old := s.Current()
		done := make(chan struct{})
		go func() {
			defer close(done)
			inc, err := n.Wait(t.Context())
			if err != nil || inc == old || !inc.Trusted() {
				t.Errorf("%v, %v, in the incarnation whose trust ended: %v", inc, err, inc == old)
			}
		}()
		<-old.Context().Done()
		client.Heal()
		<-done
		noerr.Want(t, n.Remove(t.Context()))
	})
}

// The session is given up, but the server does not know it yet: the old contender still stands in front of all. It must not count
// in the next session.
func TestNodeOfAnOldSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		n := w.node(s, "")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			return zktest.Action{Cut: r.Op == zktest.OpCloseSession}
		})
		s.GiveUp(errors.New("test"))
		<-s.Current().Context().Done()
		if inc, err := n.Wait(t.Context()); !errors.Is(err, session.ErrSessionExpired) {
			t.Errorf("got %v, %v", inc, err)
		}
		if _, _, ok := w.Srv.Get(n.Path()); !ok {
			t.Error("the node is gone already: nothing was tested")
		}
		if err := n.Remove(t.Context()); err != nil { // its session is over, which is as good
			t.Error(err)
		}
		w.Srv.SetHook(nil)
	})
}

// A search by GUID ignores a znode of another session.
func TestSearchLooksAtTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		first := true
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op != zktest.OpCreate || r.Flags != 3 || !first {
				return zktest.Action{}
			}
			first = false
			if err := w.Srv.Create(r.Path+"0000000000", nil); err != nil { // persistent: nobody owns it
				t.Error(err)
			}
			return zktest.Action{Cut: true}
		})
		n := w.node(s, "")
		if !strings.HasSuffix(n.Path(), "-n-0000000001") {
			t.Errorf("took %s", n.Path())
		}
		noerr.Want(t, n.Remove(t.Context()))
		if list := w.Srv.Children("/d"); len(list) != 1 {
			t.Errorf("left: %q", list)
		}
	})
}

// Remove may be called from anywhere, any number of times, and ends with its context.
func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.node(w.session(), "")
		w.Net.Client("a").Freeze()
		for range 3 {
			why := errors.New("enough")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
			start := time.Now()
			if err := n.Remove(ctx); !errors.Is(err, why) || time.Since(start) != time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			cancel()
		}
		w.Net.Client("a").Heal()
		noerr.Want(t, n.Remove(t.Context()))
		if list := w.Srv.Children("/d"); len(list) > 0 {
			t.Errorf("left: %q", list)
		}
	})
}
