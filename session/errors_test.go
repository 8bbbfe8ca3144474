package session_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/operrtest"
	"github.com/kielgo/kiel/session"
)

// TestErrorsNameAllOnce makes an error of each kind: its text names the package, the operation and the object once.
func TestErrorsNameAllOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		a := w.start("a", func(o *session.Options) { o.MaxPacket, o.EphemeralBudget = 4096, 32 })
		inc := a.incarnation()
		must[string](t)(inc.Create(ctx, "/a", []byte("one"), session.Persistent))
		ended, end := context.WithCancelCause(ctx)
		end(errors.New("enough"))

		_, _, err := inc.Get(ctx, "/b")
		operrtest.Once(t, err, "session", "get", "/b", "no such znode")
		_, _, err = inc.Children(ctx, "/b")
		operrtest.Once(t, err, "session", "children of", "/b")
		_, _, err = inc.GetACL(ctx, "/b")
		operrtest.Once(t, err, "session", "acl of", "/b")
		_, err = inc.Create(ctx, "/a", nil, session.Persistent)
		operrtest.Once(t, err, "session", "create", "/a", "znode exists")
		_, err = inc.Create(ctx, "/c", nil, 17)
		operrtest.Once(t, err, "session", "create", "/c", "unknown mode 17")
		_, err = inc.Set(ctx, "/a", nil, 5)
		operrtest.Once(t, err, "session", "set", "/a", "version conflict")
		_, err = inc.Set(ctx, "/a", make([]byte, 8000), -1)
		operrtest.Once(t, err, "session", "set", "/a", "request too large", "the limit is 4096")
		if large, ok := errors.AsType[*session.TooLargeError](err); !ok || large.Limit != 4096 || large.Bytes <= 8000 || large.Operations != 1 ||
			!errors.Is(err, session.ErrTooLarge) || errors.Is(err, session.ErrCostsConnection) {
			t.Errorf("%v: %+v", err, large)
		}
		_, err = inc.Create(ctx, "/long-enough-to-be-more-than-the-budget-has-for-ephemerals", nil, session.Ephemeral)
		operrtest.Once(t, err, "session", "create", "/long-", "budget of ephemeral znodes used up")
		operrtest.Once(t, inc.Delete(ctx, "/b", -1), "session", "delete", "/b")
		_, err = inc.Multi(ctx, session.CheckOp("/a", -1), session.SetOp("/b", nil, -1))
		operrtest.Once(t, err, "session", "multi", "/b", "operation 1", "no such znode")
		operrtest.Once(t, inc.Sync(ended, "/a"), "session", "sync", "/a", "enough")
		operrtest.Once(t, inc.EnsurePath(ctx, "x"), "session", "ensure", `"x"`, "invalid path", "does not begin with /")
		_, _, err = inc.Get(ctx, "y")
		operrtest.Once(t, err, "session", "get", `"y"`, "invalid path", "does not begin with /")
		_, err = inc.Create(ctx, "/a/", nil, session.Persistent)
		operrtest.Once(t, err, "session", "create", `"/a/"`, "invalid path")
		operrtest.Once(t, session.CheckPath("x"), "session", `invalid path "x"`, "does not begin with /")
		operrtest.Once(t, a.Run(ctx), "session", "run was called before")

		a.stop()
		_, _, err = inc.Get(ctx, "/a")
		operrtest.Once(t, err, "session", "get", "/a", "is closed")
		_, err = a.Incarnation(ctx)
		operrtest.Once(t, err, "session", "is closed")

		_, err = session.New(nil, session.Options{Chroot: "x"})
		operrtest.Once(t, err, "session", "argument servers is empty", "option Chroot", `"x"`)
		_, err = session.Start(ended, []string{"a"}, session.Options{})
		operrtest.Once(t, err, "session", "start", "enough")
		idle := must[*session.Session](t)(session.New([]string{"a"}, session.Options{}))
		_, err = idle.Incarnation(ended)
		operrtest.Once(t, err, "session", "wait for ZooKeeper at", "[a:2181]", "Run was not called", "enough")
	})
}
