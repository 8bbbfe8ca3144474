package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// TestLoadOnZooKeeper measures what a group to which nothing happens costs ZooKeeper: with two numbers of partitions, to tell
// what members cost and what partitions do.
func TestLoadOnZooKeeper(t *testing.T) {
	for _, each := range []int{5, 50} {
		t.Run(fmt.Sprint(each, " each"), func(t *testing.T) { load(t, 20, each) })
	}
}

func load(t *testing.T, count, each int) {
	const calm = 30 * time.Second
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: map[string]string{"4lw.commands.whitelist": "*"}})
	empty := figuresOf(t, zk)
	seed := map[string][]int32{"orders": nil}
	for id := range int32(count * each) {
		seed["orders"] = append(seed["orders"], id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var owners []*ownership.Owner
	for i := range count {
		owners = append(owners, runOwner(ctx, t, &running, zk.Addrs(), fmt.Sprintf("member-%02d", i), seed))
	}
	owned := func() (n int) {
		for _, o := range owners {
			n += len(o.Owned())
		}
		return n
	}
	wait.Until(t, time.Minute, func() bool { return owned() == count*each }, func() string { return fmt.Sprint(owned(), " owned") })
	time.Sleep(calm) // until all have looked around
	before := figuresOf(t, zk)
	time.Sleep(calm)
	after := figuresOf(t, zk)
	t.Logf("%d members, %d partitions: %d znodes, %d of them ephemeral, %d bytes of data and paths, %d watches", count, count*each,
		after["zk_znode_count"]-empty["zk_znode_count"], after["zk_ephemerals_count"], after["zk_approximate_data_size"]-empty["zk_approximate_data_size"],
		after["zk_watch_count"])
	requests := after["zk_packets_received"] - before["zk_packets_received"]
	t.Logf("in %v without a change: %.2f requests a second and member", calm, float64(requests)/calm.Seconds()/float64(count))
	cancel()
	running.Wait()
}

func runOwner(ctx context.Context, t *testing.T, running *sync.WaitGroup, zk []string, name string, seed map[string][]int32) *ownership.Owner {
	t.Helper()
	return runOwnerOf(ctx, t, running, zk, "bench", name, seed)
}

func runOwnerOf(ctx context.Context, t *testing.T, running *sync.WaitGroup, zk []string, group, name string, seed map[string][]int32) *ownership.Owner {
	t.Helper()
	s, err := session.New(zk, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.New(s, group, name, allocator.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	o, err := ownership.New(a, func(ctx context.Context, _ *ownership.Claim) error {
		<-ctx.Done()
		return nil
	}, ownership.Options{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	run(s.Run)
	run(o.Run)
	return o
}

// figuresOf returns what the server says of itself in whole numbers.
func figuresOf(t *testing.T, zk *servers.ZooKeeper) map[string]int {
	t.Helper()
	answer, err := zk.Nodes()[0].Ask("mntr")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for line := range strings.Lines(answer) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.Atoi(value); err == nil {
			values[name] = n
		}
	}
	return values
}
