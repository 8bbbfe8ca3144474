package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/zktest"
)

// TestPartitionThousand measures how long a member that is alone needs to acquire the locks of 1,000 items, and to release them.
// The first round creates the locks' directories, the later ones find them.
func TestPartitionThousand(t *testing.T) {
	const items = 1000
	for name, start := range map[string]func() string{
		"zookeeper": func() string { return servers.StartZooKeeper(t, servers.ZooKeeperOptions{Heap: "256m"}).Addr() },
		"zktest":    func() string { _, addr := zktest.Start(t, zktest.Options{}); return addr },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := session.New([]string{start()}, session.Options{})
			if err != nil {
				t.Fatal(err)
			}
			recipetest.Run(t, s)
			acquired, released := partitionAll(t, s, items, max(*rounds, 2))
			t.Attr("partition-thousand-"+name, fmt.Sprintf("%v, first %v", millis(middle(acquired[1:])), millis(acquired[0])))
			t.Logf("%d items: the first locks, which create their directories, %v", items, acquired[0].Round(time.Millisecond))
			t.Logf("locks %s; release of all %s", spread(acquired[1:]), spread(released))
		})
	}
}

// partitionAll acquires and releases a set of n items in each of some rounds, and returns how long each took.
func partitionAll(t *testing.T, s *session.Session, n, times int) (acquired, released []time.Duration) {
	t.Helper()
	set := make([]string, n)
	for i := range set {
		set[i] = fmt.Sprintf("item-%04d", i)
	}
	const boundary = time.Millisecond // which the figures include
	p, err := partitioner.New(s, "/bench/partition", set, partitioner.Options{TimeBoundary: boundary})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Incarnation(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := func(do func(ctx context.Context) error) time.Duration {
		began := time.Now()
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	wait := func(ctx context.Context) error {
		done, err := p.WaitForAcquire(ctx)
		if err == nil && (!done || len(p.Items()) != n) {
			err = fmt.Errorf("acquired %d of %d", len(p.Items()), n)
		}
		return err
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range times {
		acquired = append(acquired, took(wait))
		released = append(released, took(p.ReleaseSet))
	}
	if err := p.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return acquired, released
}
