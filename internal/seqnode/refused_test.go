package seqnode_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The reply to a create is lost, and the server refuses to show the outcome. The contender is removed as soon as the server shows
// it, even if the caller has given up, and no other is created before that.
func TestLookIsRefusedAfterALostReply(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		for _, look := range []zktest.Op{zktest.OpSync, zktest.OpGetChildren2, zktest.OpExists} {
			for _, giveUp := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					dir := seqnode.NewDir(w.session(), "/d", seqnode.Options{Word: "-n-", Rivals: []string{"-n-"}, Persistent: persistent})
					first, err := dir.Create(t.Context())
					noerr.Must(t, err)
					noerr.Must(t, first.Remove(t.Context()))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					w.refuseLooks(look, 3, func() {
						if giveUp {
							cancel()
						}
					})
					_, err = dir.Create(ctx)
					if !errors.Is(err, session.ErrNoAuth) && (!giveUp || !errors.Is(err, context.Canceled)) {
						t.Errorf("%v, %v: created: %v", persistent, look, err)
					}
					n, err := dir.Create(t.Context()) // waits for the end of the first
					if err != nil {
						t.Fatalf("%v, %v: the next: %v", persistent, look, err)
					}
					if list := w.Srv.Children("/d"); len(list) != 1 {
						t.Errorf("%v, %v: orphaned: %q", persistent, look, list)
					}
					noerr.Want(t, n.Remove(t.Context()))
				})
			}
		}
	}
}

// refuseLooks loses the reply to the next create of a contender and calls lose. From then on it answers n requests of one kind
// with NOAUTH.
func (w *world) refuseLooks(look zktest.Op, n int, lose func()) {
	lost := false
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		switch {
		case !lost && r.Op == zktest.OpCreate:
			lost = true
			lose()
			return zktest.Action{LoseReply: true}
		case lost && n > 0 && r.Op == look:
			n--
			return zktest.Action{Err: zktest.ErrNoAuth}
		}
		return zktest.Action{}
	})
}

// A contender in front that can't be read hides its data, not its place.
func TestUnreadableNodeInFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		a, b, c := w.node(s, "first"), w.node(s, "second"), w.node(s, "third")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetData {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		why := errors.New("busy")
		_, err := c.First(t.Context(), why)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, why) ||
			blocked.Blocker != a.Path() || blocked.Identifier != "" || blocked.Detail != "2 ahead" {
			t.Errorf("First: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = c.Wait(ctx)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, context.DeadlineExceeded) ||
			blocked.Blocker != a.Path() || blocked.Identifier != "" {
			t.Errorf("Wait: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := b.Wait(t.Context())
			done <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		noerr.Want(t, a.Remove(t.Context()))
		if err := <-done; err != nil || time.Since(start) > time.Second {
			t.Errorf("the second, after %v: %v", time.Since(start), err)
		}
		for _, n := range []*seqnode.Node{b, c} {
			noerr.Want(t, n.Remove(t.Context()))
		}
	})
}
