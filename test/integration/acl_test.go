package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	waiting "github.com/kielgo/kiel/test/wait"
)

// The ACL of the members' directory is wrong for some seconds, while one of three members loses its session: no member ends, and
// all come back when the ACL is right again.
func TestMembersACLWrongForAWhile(t *testing.T) {
	const partitions = 6
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	operator, events, err := zk.Connect([]string{server.Addr()}, 20*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		operator.Close()
		for range events {
			continue
		}
	})
	var owners []*ownership.Owner
	var sessions []*session.Session
	ended := make(chan error, 3)
	for i := range 3 {
		s := open(t, server.Addr(), session.Options{Timeout: 6 * time.Second, MinSessionTimeout: time.Second})
		log := slog.New(slog.DiscardHandler)
		a, err := allocator.New(s, "g", fmt.Sprint("m", i), allocator.Options{Seed: map[string][]int32{"t": {0, 1, 2, 3, 4, 5}}, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ownership.New(a, func(ctx context.Context, _ *ownership.Claim) error { <-ctx.Done(); return nil }, ownership.Options{Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		owners, sessions = append(owners, o), append(sessions, s)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := o.Run(ctx); err != nil {
				ended <- err
			}
		}()
		t.Cleanup(func() { stop(); <-done })
	}
	shared := func() (bool, string) {
		var each []int
		right := true
		for _, o := range owners {
			n := len(o.Owned())
			each, right = append(each, n), right && n == partitions/len(owners)
		}
		return right, fmt.Sprint(each)
	}
	owned := func() bool { ok, _ := shared(); return ok }
	describe := func() string { _, each := shared(); return "owned " + each }
	waiting.Until(t, time.Minute, owned, describe)

	members := owners[0].Allocator().MembersPath()
	if _, err := operator.SetACL(members, zk.DigestACL(zk.PermAll, "root", "x"), -1); err != nil {
		t.Fatal(err)
	}
	if err := operator.AddAuth("digest", []byte("root:x")); err != nil {
		t.Fatal(err)
	}
	sessions[1].GiveUp(errors.New("the test ends this session"))
	refused := func(o *ownership.Owner) bool { return errors.Is(o.Allocator().Snapshot().Err, session.ErrNoAuth) }
	waiting.Until(t, time.Minute, func() bool {
		return refused(owners[0]) && refused(owners[1]) && refused(owners[2]) && len(owners[1].Owned()) == 0
	},
		func() string { return "not all are refused; " + describe() })
	if got := owners[1].Status(); got.Self.Waiting == "" || len(got.Troubles) == 0 {
		t.Errorf("the status of a member that may not join: waiting %q, troubles %v", got.Self.Waiting, got.Troubles)
	}
	if _, err := operator.SetACL(members, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	waiting.Until(t, time.Minute, owned, describe)
	t.Logf("all is owned again after %v", time.Since(began))
	select {
	case err := <-ended:
		t.Errorf("a member has ended: %v", err)
	default:
	}
}
