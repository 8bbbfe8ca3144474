package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

// TestClaimThousand measures how long one member needs to claim 1,000 partitions, alone in its group, from its first snapshot to
// the last handler's start; the first round makes the epoch znodes, the later ones find them.
func TestClaimThousand(t *testing.T) {
	const partitions = 1000
	for name, nodes := range map[string]int{"one server": 1, "ensemble of three": 3} {
		t.Run(name, func(t *testing.T) {
			// A server keeps its last 500 transactions in memory, which are large here: with less it would collect garbage all
			// the time.
			zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Servers: nodes, Heap: "256m"})
			seed := map[string][]int32{"orders": nil}
			for id := range int32(partitions) {
				seed["orders"] = append(seed["orders"], id)
			}
			var claims, releases []time.Duration
			for range max(*rounds, 2) {
				claim, release := claimAll(t, zk.Addrs(), seed, partitions)
				claims, releases = append(claims, claim), append(releases, release)
			}
			t.Logf("%d partitions, %s: the first claims, which make the epoch znodes, %v", partitions, name, claims[0].Round(time.Millisecond))
			t.Logf("claims %s; leave with all of them %s", spread(claims[1:]), spread(releases))
		})
	}
}

func claimAll(t *testing.T, zk []string, seed map[string][]int32, n int) (claim, release time.Duration) {
	t.Helper()
	s, err := session.New(zk, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.New(s, "bench", "m", allocator.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{}, n)
	o, err := ownership.New(a, func(ctx context.Context, _ *ownership.Claim) error {
		opened <- struct{}{}
		<-ctx.Done()
		return nil
	}, ownership.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- s.Run(ctx) }()
	owned := make(chan error, 1)
	go func() { owned <- o.Run(ctx) }()
	if err := a.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for range n {
		select {
		case <-opened:
		case <-time.After(time.Minute):
			t.Fatal("not all were claimed in a minute")
		}
	}
	claim = time.Since(begin)
	begin = time.Now()
	cancel()
	if err := <-owned; err != nil {
		t.Error(err)
	}
	release = time.Since(begin)
	if err := <-done; err != nil {
		t.Error(err)
	}
	return claim, release
}
