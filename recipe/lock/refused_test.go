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
		inWorld(t, func(w *world) {
			l := w.lock("a")
			w.acquireAndRelease(l)
			w.Steps(recipetest.LosesReply(is(zktest.OpCreate)), recipetest.Meets(zktest.Action{Err: zktest.ErrNoAuth}, is(look)))
			if _, err := l.Acquire(w.Context()); !errors.Is(err, session.ErrNoAuth) {
				w.Errorf("%v: %v", look, err)
			}
			h := w.acquire(l)
			w.wantContenders(1)
			w.Release(h)
			w.wantContenders(0)
		})
	}
}

// An ACL forbids reading the holder's contender: that hides its identifier and nothing else.
func TestUnreadableContender(t *testing.T) {
	inWorld(t, func(w *world) {
		h, l := w.acquire(w.lock("holder")), w.lock("a")
		w.Refuse(zktest.ErrNoAuth, func(r zktest.Request) bool { return r.Op == zktest.OpGetData && r.Path == h.Node() })
		_, err := l.TryAcquire(w.Context())
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, lock.ErrNotAcquired) ||
			blocked.Blocker != h.Node() || blocked.Identifier != "" {
			w.Errorf("TryAcquire: %v", err)
		}
		a := w.acquireLater(w.Context(), l)
		time.Sleep(time.Minute)
		if a.Ended() {
			w.Fatalf("did not wait: %v", a.Err)
		}
		list, err := l.Contenders(w.Context())
		if err != nil || len(list) != 2 || list[0].Node != h.Node() || list[0].Identifier != "" ||
			list[0].Token != h.Token() || list[1].Identifier != "a" {
			w.Errorf("Contenders: %+v, %v", list, err)
		}
		w.Release(h)
		w.Release(a.Get(w))
	})
}

// The context ends just when somebody has removed the contender: the error wraps the cause of the context.
func TestContextEndsBesideALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("a")
		w.acquireAndRelease(l)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		defer cancel(nil)
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch r.Op {
			case zktest.OpGetChildren2: // it sees that it is gone
				for _, name := range w.contenders() {
					w.Check(w.Srv.Delete(path + "/" + name))
				}
			case zktest.OpDelete:
				cancel(why)
			default:
			}
			return zktest.Action{}
		})
		if _, err := l.Acquire(ctx); !errors.Is(err, why) {
			w.Errorf("got %v", err)
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
			w.Release(h)
			if h.Valid() {
				w.Errorf("%s: valid after Release", what)
			}
			h = w.acquire(l)
			w.Must(w.Srv.Delete(h.Node()))
			w.Ended(h, lock.ErrLost)
			if h.Valid() {
				w.Errorf("%s: valid without a contender", what)
			}
		}
	})
}

// Valid is false before the context ends.
func TestValidBeforeItsContextEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		recipetest.InvalidBeforeItsContextEnds(w, w.Net, func(s *session.Session) recipetest.Relied {
			return w.acquire(w.lockIn(s, "a"))
		})
	})
}

// Settle waits for contenders that are being removed, and not for those of holds or of calls that wait.
func TestSettle(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.lockIn(s, "client")
		settle := func(within time.Duration) error { return l.Settle(w.Within(within)) }
		h := w.acquire(l)
		ctx, giveUp := context.WithCancel(w.Context())
		waiting, givenUp := w.acquireLater(w.Context(), l), w.acquireLater(ctx, l)
		time.Sleep(time.Second)
		if err := settle(0); err != nil || len(w.Srv.Children(path)) != 3 {
			w.Fatalf("nothing is being removed: %v; %q", err, w.Srv.Children(path))
		}
		w.Refuse(zktest.ErrThrottled, is(zktest.OpDelete))
		giveUp()
		if <-givenUp.Done; !errors.Is(givenUp.Err, context.Canceled) {
			w.Errorf("given up: %v", givenUp.Err)
		}
		blocked := &recipe.BlockedError{}
		if err := settle(5 * time.Second); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &blocked) ||
			!slices.Contains(w.Srv.Children(path), strings.TrimPrefix(blocked.Blocker, path+"/")) {
			w.Errorf("it can't be removed: %v; %q", err, w.Srv.Children(path))
		}
		w.Srv.SetHook(nil)
		if err := settle(5 * time.Second); err != nil || len(w.Srv.Children(path)) != 2 {
			w.Errorf("it can: %v; %q", err, w.Srv.Children(path))
		}
		w.Release(h)
		w.Release(waiting.Get(w))
	})
}
