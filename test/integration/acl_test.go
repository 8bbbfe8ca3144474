package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	waiting "github.com/kielgo/kiel/test/wait"
)

// The ACL of the members' directory is wrong for some seconds, while one of three members loses its session: no member ends, and
// all come back when the ACL is right again.
func TestMembersACLWrongForAWhile(t *testing.T) {
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
	var owners []*owner
	for i := range 3 {
		o := startOwner(t, []string{server.Addr()}, fmt.Sprint("m", i), 0, 1, 2, 3, 4, 5)
		defer o.stop()
		owners = append(owners, o)
	}
	each := func() (n []int) {
		for _, o := range owners {
			n = append(n, len(o.Owned()))
		}
		return n
	}
	shared := func() bool { return slices.Equal(each(), []int{2, 2, 2}) }
	describe := func() string { return fmt.Sprint("owned ", each()) }
	waiting.Until(t, time.Minute, shared, describe)

	members := owners[0].alloc.MembersPath()
	if _, err := operator.SetACL(members, zk.DigestACL(zk.PermAll, "root", "x"), -1); err != nil {
		t.Fatal(err)
	}
	if err := operator.AddAuth("digest", []byte("root:x")); err != nil {
		t.Fatal(err)
	}
	owners[1].session.GiveUp(errors.New("the test ends this session"))
	refused := func(o *owner) bool { return errors.Is(o.alloc.Snapshot().Err, session.ErrNoAuth) }
	waiting.Until(t, time.Minute, func() bool {
		return refused(owners[0]) && refused(owners[1]) && refused(owners[2]) && len(owners[1].Owned()) == 0
	}, func() string { return "not all are refused; " + describe() })
	if got := owners[1].Status(); got.Self.Waiting == "" || len(got.Troubles) == 0 {
		t.Errorf("the status of a member that may not join: waiting %q, troubles %v", got.Self.Waiting, got.Troubles)
	}
	if _, err := operator.SetACL(members, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	waiting.Until(t, time.Minute, shared, describe)
}
