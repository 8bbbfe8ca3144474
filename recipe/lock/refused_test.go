package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The reply to a create is lost, and the server refuses to show whether the contender exists: a handle is not blocked by its own
// contender.
func TestLookIsRefusedAfterALostReply(t *testing.T) {
	for _, look := range []zktest.Op{zktest.OpSync, zktest.OpGetChildren2, zktest.OpExists} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			l := w.lock("a")
			w.acquireAndRelease(l)
			lost, refused := false, false
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				switch {
				case !lost && r.Op == zktest.OpCreate:
					lost = true
					return zktest.Action{LoseReply: true}
				case lost && !refused && r.Op == look:
					refused = true
					return zktest.Action{Err: zktest.ErrNoAuth}
				}
				return zktest.Action{}
			})
			if _, err := l.Acquire(t.Context()); !errors.Is(err, session.ErrNoAuth) {
				t.Errorf("%v: %v", look, err)
			}
			h := w.acquire(l)
			w.wantContenders(1)
			w.release(h)
			w.wantContenders(0)
		})
	}
}

// An ACL forbids reading the holder's contender: that hides its identifier and nothing else.
func TestUnreadableContender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h, l := w.acquire(w.lock("holder")), w.lock("a")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetData && r.Path == h.Node() {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		_, err := l.TryAcquire(t.Context())
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, lock.ErrNotAcquired) ||
			blocked.Blocker != h.Node() || blocked.Identifier != "" {
			t.Errorf("TryAcquire: %v", err)
		}
		a := w.acquireLater(t.Context(), l)
		time.Sleep(time.Minute)
		if a.ended() {
			t.Fatalf("did not wait: %v", a.err)
		}
		list, err := l.Contenders(t.Context())
		if err != nil || len(list) != 2 || list[0].Node != h.Node() || list[0].Identifier != "" ||
			list[0].Token != h.Token() || list[1].Identifier != "a" {
			t.Errorf("Contenders: %+v, %v", list, err)
		}
		w.release(h)
		w.release(w.got(a))
	})
}

// The context ends just when somebody has removed the contender: the error wraps the cause of the context.
func TestContextEndsBesideALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.lock("a")
		w.acquireAndRelease(l)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch r.Op {
			case zktest.OpGetChildren2: // it sees that it is gone
				for _, name := range w.contenders() {
					if err := w.Srv.Delete(path + "/" + name); err != nil {
						t.Error(err)
					}
				}
			case zktest.OpDelete:
				cancel(why)
			default:
			}
			return zktest.Action{}
		})
		if _, err := l.Acquire(ctx); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		w.wantContenders(0)
	})
}

// Valid ends with the hold, also when the session is trusted.
func TestValid(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		for what, l := range map[string]*lock.Lock{"ephemeral": w.lockIn(s, "a"), "persistent": w.persistent(s, "a")} {
			h := w.acquire(l)
			if !h.Valid() {
				w.Errorf("%s: a new hold is not valid", what)
			}
			w.release(h)
			if h.Valid() {
				w.Errorf("%s: valid after Release", what)
			}
			h = w.acquire(l)
			if err := w.Srv.Delete(h.Node()); err != nil {
				w.Fatal(err)
			}
			w.ended(h, lock.ErrLost)
			if h.Valid() {
				w.Errorf("%s: valid without a contender", what)
			}
		}
	})
}

// Valid is false before the context ends.
func TestValidBeforeItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		recipetest.InvalidBeforeItsContextEnds(t, w.Net, func(s *session.Session) recipetest.Relied {
			return w.acquire(w.lockIn(s, "a"))
		})
	})
}

// Settle waits for contenders that are being removed, and not for those of holds or of calls that wait.
func TestSettle(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.lockIn(s, "client")
		settle := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(w.Context(), within)
			defer cancel()
			return l.Settle(ctx)
		}
		h := w.acquire(l)
		ctx, giveUp := context.WithCancel(w.Context())
		waiting, gaveUp := make(chan error, 1), make(chan error, 1)
		go func() { // waits on
			h, err := l.Acquire(w.Context())
			if err == nil {
				err = h.Release(w.Context())
			}
			waiting <- err
		}()
		go func() {
			_, err := l.Acquire(ctx)
			gaveUp <- err
		}()
		time.Sleep(time.Second)
		if err := settle(0); err != nil || len(w.Srv.Children(path)) != 3 {
			t.Fatalf("nothing is being removed: %v; %q", err, w.Srv.Children(path))
		}
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpDelete {
				return zktest.Action{Err: zktest.ErrThrottled}
			}
			return zktest.Action{}
		})
		giveUp()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		blocked := &recipe.BlockedError{}
		if err := settle(5 * time.Second); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &blocked) ||
			!slices.Contains(w.Srv.Children(path), strings.TrimPrefix(blocked.Blocker, path+"/")) {
			t.Errorf("it can't be removed: %v; %q", err, w.Srv.Children(path))
		}
		w.Srv.SetHook(nil)
		if err := settle(5 * time.Second); err != nil || len(w.Srv.Children(path)) != 2 {
			t.Errorf("it can: %v; %q", err, w.Srv.Children(path))
		}
		if err := h.Release(w.Context()); err != nil {
			t.Error(err)
		}
		if err := <-waiting; err != nil {
			t.Error(err)
		}
	})
}
