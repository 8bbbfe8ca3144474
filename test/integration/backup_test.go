package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	waiting "github.com/kielgo/kiel/test/wait"
)

// owner is a member that owns what it is given.
type owner struct {
	*ownership.Owner
	alloc   *allocator.PartitionAllocator
	session *session.Session
	stop    func() // before the servers, which a test stops before its earlier cleanups if they were started again
}

func startOwner(t *testing.T, addrs []string, name string, seed ...int32) *owner {
	t.Helper()
	s, err := session.Start(t.Context(), addrs, session.Options{Timeout: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.New(s, "g", name, allocator.Options{Seed: map[string][]int32{"t": seed}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := ownership.New(a, func(ctx context.Context, _ *ownership.Claim) error { <-ctx.Done(); return nil }, ownership.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- o.Run(ctx) }()
	return &owner{Owner: o, alloc: a, session: s, stop: func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("session of %s: %v", name, err)
		}
	}}
}

// untilOwned waits until the owners have these partitions, each once.
func untilOwned(t *testing.T, want []int32, owners ...*owner) {
	t.Helper()
	var got []int32
	began := time.Now()
	waiting.Until(t, time.Minute, func() bool {
		got = nil
		for _, o := range owners {
			for _, info := range o.Owned() {
				got = append(got, info.Partition)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("owned %v, want %v", got, want) })
	t.Logf("%v owned after %v", want, time.Since(began).Round(time.Millisecond))
}

// TestRestoredFromABackup: after the servers went back to a backup, all is owned that was before, also what was added since, and
// what a member had released to another.
func TestRestoredFromABackup(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d servers", size), func(t *testing.T) {
			t.Parallel()
			zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Servers: size})
			a := startOwner(t, zk.Addrs(), "a", 0, 1, 2, 3)
			defer a.stop()
			untilOwned(t, []int32{0, 1, 2, 3}, a)
			zk.Kill()
			restore := zk.Backup()
			zk.Start()
			untilOwned(t, []int32{0, 1, 2, 3}, a)
			b := startOwner(t, zk.Addrs(), "b")
			defer b.stop()
			if err := a.alloc.AddPartitions(t.Context(), map[string][]int32{"t": {4, 5}}); err != nil {
				t.Fatal(err)
			}
			all := []int32{0, 1, 2, 3, 4, 5}
			untilOwned(t, all, a, b)

			zk.Kill()
			restore()
			zk.Start()
			untilOwned(t, all, a, b)
			if len(a.Owned()) != 3 {
				t.Errorf("a owns %v", a.Owned())
			}
			if err := a.alloc.Snapshot().Err; err != nil {
				t.Error(err)
			}
		})
	}
}
