package session_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
)

func TestOperations(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		inc := w.start("a", nil).incarnation()

		if got := must[string](t)(inc.Create(ctx, "/a", []byte("one"), session.Persistent)); got != "/a" {
			t.Errorf("Create = %q", got)
		}
		data, stat, err := inc.Get(ctx, "/a")
		if err != nil || string(data) != "one" || stat.Version != 0 {
			t.Errorf("Get = %q, %+v, %v", data, stat, err)
		}
		stat = must[session.Stat](t)(inc.Set(ctx, "/a", []byte("two"), 0))
		if stat.Version != 1 {
			t.Errorf("Set: version %d", stat.Version)
		}
		_, err = inc.Set(ctx, "/a", nil, 0)
		wantErr(t, "Set with an old version", err, session.ErrBadVersion)
		_, err = inc.Create(ctx, "/a", nil, session.Persistent)
		wantErr(t, "Create twice", err, session.ErrNodeExists)
		_, _, err = inc.Get(ctx, "/b")
		wantErr(t, "Get nothing", err, session.ErrNoNode)
		if got := err.Error(); got != "session: get /b: no such znode" {
			t.Errorf("error text %q", got)
		}

		for _, name := range []string{"/a/z", "/a/b"} {
			must[string](t)(inc.Create(ctx, name, nil, session.Ephemeral))
		}
		_, err = inc.Create(ctx, "/a/b/c", nil, session.Persistent)
		wantErr(t, "child of an ephemeral", err, session.ErrEphemeralParent)
		wantErr(t, "Delete with children", inc.Delete(ctx, "/a", -1), session.ErrNotEmpty)
		names, stat, err := inc.Children(ctx, "/a")
		if err != nil || !slices.Equal(names, []string{"b", "z"}) || stat.NumChildren != 2 {
			t.Errorf("Children = %q, %+v, %v", names, stat, err)
		}
		found, stat, err := inc.Exists(ctx, "/a/z")
		if err != nil || !found || stat.EphemeralOwner != inc.SessionID() {
			t.Errorf("Exists = %v, %+v, %v", found, stat, err)
		}
		found, _, err = inc.Exists(ctx, "/a/y")
		if err != nil || found {
			t.Errorf("Exists = %v, %v", found, err)
		}
		if got := must[string](t)(inc.Create(ctx, "/a/s-", nil, session.EphemeralSequential)); got != "/a/s-0000000002" {
			t.Errorf("sequential Create = %q", got)
		}
		acl, _, err := inc.GetACL(ctx, "/a")
		if err != nil || !slices.Equal(acl, session.WorldACL(session.PermAll)) {
			t.Errorf("GetACL = %v, %v", acl, err)
		}
		noerr.Want(t, errors.Join(inc.Sync(ctx, "/"), inc.EnsurePath(ctx, "/p/q/r"), inc.EnsurePath(ctx, "/p/q/r")))

		results, err := inc.Multi(ctx, session.CheckOp("/p", 0), session.CreateOp("/p/n", []byte("x"), session.Persistent),
			session.SetOp("/a", []byte("three"), 1), session.DeleteOp("/p/q/r", -1))
		if err != nil || len(results) != 4 || results[1].Path != "/p/n" || results[2].Stat.Version != 2 {
			t.Errorf("Multi = %+v, %v", results, err)
		}
		_, err = inc.Multi(ctx, session.DeleteOp("/p/n", -1), session.CheckOp("/a", 7), session.CheckOp("/nothing", -1))
		wantErr(t, "refused Multi", err, session.ErrBadVersion)
		if refused, ok := errors.AsType[*session.MultiError](err); !ok || refused.Index != 1 {
			t.Errorf("refused Multi: %v", err)
		}
		if found, _, _ := inc.Exists(ctx, "/p/n"); !found {
			t.Error("a refused Multi deleted something")
		}

		done, cancel := context.WithCancelCause(ctx)
		cancel(errEnough)
		_, _, err = inc.Get(done, "/a")
		wantErr(t, "Get with an ended context", err, errEnough)
		err = inc.Delete(done, "/a", -1)
		wantErr(t, "Delete with an ended context", err, errEnough)
		if errors.Is(err, session.ErrUncertain) {
			t.Error("nothing was sent, but the outcome is called uncertain")
		}
		for _, path := range []string{"", "a", "/a/", "//", "/a/../b", "/\x00"} {
			_, _, err = inc.Get(ctx, path)
			wantErr(t, "Get "+path, err, session.ErrInvalidPath)
		}
	})
}

var errEnough = errors.New("enough")
