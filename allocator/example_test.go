package allocator_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/session"
)

// A process that takes part in a group, and is told whenever its share of the
// partitions changes.
func Example() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	s, err := session.Start(context.Background(), zk.Addrs, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	started := make(chan struct{})
	a, err := allocator.New(s, "billing", "host-1", allocator.Options{
		Seed: map[string][]int32{"orders": {0, 1, 2}},
		OnRebalance: func(_ context.Context, r allocator.Rebalance) {
			if len(r.Removed) > 0 {
				fmt.Println("stop working on", r.Removed)
			}
			if len(r.Added) > 0 {
				fmt.Println("start working on", r.Added)
				close(started)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	running.Go(func() { _ = a.Run(ctx) })

	<-started
	fmt.Println(a.Allocation())
	if err := a.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// start working on [orders:0 orders:1 orders:2]
	// map[orders:[0 1 2]]
	// stop working on [orders:0 orders:1 orders:2]
}

// Following the group without callbacks: here until a partition that was added
// by somebody has an owner.
func ExamplePartitionAllocator_Updates() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	s, err := session.Start(context.Background(), zk.Addrs, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	a, err := allocator.New(s, "billing", "host-1", allocator.Options{})
	if err != nil {
		log.Fatal(err)
	}
	running.Go(func() { _ = a.Run(ctx) })

	if err := a.AddPartitions(ctx, map[string][]int32{"orders": {7}}); err != nil {
		log.Fatal(err)
	}
	for snapshot := range a.Updates(ctx) {
		if owner, ok := snapshot.Owner(allocfn.Partition{Topic: "orders", ID: 7}); ok {
			fmt.Println("orders:7 belongs to", owner)
			break
		}
	}
	// Output: orders:7 belongs to host-1
}

// Moving a group to another allocation function, one process at a time: first
// all are restarted with both functions, then with the new one alone. The group
// changes over when the last member can run the new one.
func ExampleOptions_alsoFuncs() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	start := func(name string, opts allocator.Options) *allocator.PartitionAllocator {
		s, err := session.New(zk.Addrs, session.Options{})
		if err != nil {
			log.Fatal(err)
		}
		a, err := allocator.New(s, "billing", name, opts)
		if err != nil {
			log.Fatal(err)
		}
		running.Go(func() { _ = s.Run(ctx) })
		running.Go(func() { _ = a.Run(ctx) })
		if err := a.Ready(ctx); err != nil {
			log.Fatal(err)
		}
		return a
	}
	both := allocator.Options{Func: allocfn.Range(), AlsoFuncs: []allocfn.Func{allocfn.RoundRobin()}}
	old := start("host-2", allocator.Options{Func: allocfn.RoundRobin()})
	a := start("host-1", both)
	fmt.Println(a.Snapshot().Func)

	if err := old.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	start("host-2", both)
	for snapshot := range a.Updates(ctx) {
		if snapshot.Func == allocfn.Range().ID() && len(snapshot.Members) == 2 {
			fmt.Println(snapshot.Func)
			break
		}
	}
	// Output:
	// roundrobin/1
	// range/1
}
