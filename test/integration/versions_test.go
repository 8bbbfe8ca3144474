package integration_test

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

var full = flag.Bool("full", false, "on old versions of ZooKeeper, too")

// TestVersions: a group on an ensemble of each version of ZooKeeper: members share and take over, also after a restart of all
// servers, a set and a lock work, and the session's errors are told apart as on the newest version.
func TestVersions(t *testing.T) {
	versions := []string{servers.ZooKeeper38}
	if *full {
		versions = append(servers.OldZooKeepers(), servers.ZooKeeper38, servers.ZooKeeper39)
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			const limit = 64 << 10
			zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Version: version, Servers: 3, JuteMaxBuffer: limit})
			a, b := startOwner(t, zk.Addrs(), "a", 0, 1, 2, 3), startOwner(t, zk.Addrs(), "b", 4, 5)
			defer a.stop()
			untilOwned(t, []int32{0, 1, 2, 3, 4, 5}, a, b)
			zk.Restart()
			untilOwned(t, []int32{0, 1, 2, 3, 4, 5}, a, b)
			b.stop()
			untilOwned(t, []int32{0, 1, 2, 3, 4, 5}, a)
			t.Run("recipes", func(t *testing.T) { recipesOf(t, zk.Addrs()) })
		})
	}
}

// recipesOf uses a set, a lock, and requests that servers refuse, in a chroot that is missing.
func recipesOf(t *testing.T, addrs []string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := session.Start(ctx, addrs, session.Options{
		Timeout: 6 * time.Second, Chroot: "/other/tree", Auth: []session.Auth{{Scheme: "digest", Credential: []byte("user:password")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	set, err := sharedset.New(s, "/set", sharedset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := set.Add(ctx, "t:1", "t:2"); n != 2 || err != nil {
		t.Errorf("added %d, %v", n, err)
	}
	l, err := lock.New(s, "/lock", lock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Do(ctx, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	inc, err := s.Incarnation(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ got, want error }{
		"missing parent":  {errorOf(inc.Create(ctx, "/no/parent", nil, session.Persistent)), session.ErrNoNode},
		"twice":           {errorOf(inc.Create(ctx, "/set", nil, session.Persistent)), session.ErrNodeExists},
		"wrong version":   {errorOf(inc.Set(ctx, "/set", nil, 77)), session.ErrBadVersion},
		"has children":    {inc.Delete(ctx, "/", -1), session.ErrNotEmpty},
		"refused in part": {errorOf(inc.Multi(ctx, session.CheckOp("/", -1), session.DeleteOp("/nothing", -1))), session.ErrNoNode},
		"not our root":    {inc.EnsurePath(ctx, "/"), nil},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	for err = nil; !errors.Is(err, session.ErrCostsConnection); { // a caller that repeats what it does not know
		if _, err = inc.Create(ctx, "/large", []byte(strings.Repeat("x", 100_000)), session.Persistent); err == nil || ctx.Err() != nil {
			t.Fatalf("too large for the servers: %v", err)
		}
	}
	if n := s.Stats().Reconnects; n > 6 {
		t.Errorf("%d reconnects", n)
	}
}

func errorOf[T any](_ T, err error) error { return err }
