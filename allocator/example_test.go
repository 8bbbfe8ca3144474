package allocator_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A process that takes part in a group, and is told whenever its share of the partitions changes.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, closed := connect(ctx)
	defer closed()

	a, err := allocator.New(s, "billing", "host-1", allocator.Options{
		Seed: map[string][]int32{"orders": {0, 1, 2}},
		OnRebalance: func(_ context.Context, r allocator.Rebalance) {
			if len(r.Removed) > 0 {
				fmt.Println("stop working on", r.Removed)
			}
			if len(r.Added) > 0 {
				fmt.Println("start working on", r.Added)
				stop() // here; a program works until it is told to end
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := a.Run(ctx); err != nil { // returns when ctx has ended and the member has left the group
		log.Fatal(err)
	}
	// Output:
	// start working on [orders:0 orders:1 orders:2]
	// stop working on [orders:0 orders:1 orders:2]
}

// Following the group without callbacks: here until a partition that was added by somebody has an owner.
func ExamplePartitionAllocator_Updates() {
	s, closed := connect(context.Background())
	defer closed()
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
		if owner, ok := snapshot.Planned(kiel.Partition{Topic: "orders", ID: 7}); ok {
			fmt.Println("orders:7 belongs to", owner)
			fmt.Println("host-1 has", a.Allocation())
			break
		}
	}
	// Output:
	// orders:7 belongs to host-1
	// host-1 has map[orders:[7]]
}

// Moving a group to another allocation function, one process at a time: first all are restarted with both functions, then with
// the new one alone. The group changes over when the last member can run the new one.
func ExampleOptions_alsoFuncs() {
	s, closed := connect(context.Background()) // one for all members; processes have one each
	defer closed()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	start := func(name string, opts allocator.Options) *allocator.PartitionAllocator {
		a, err := allocator.New(s, "billing", name, opts)
		if err != nil {
			log.Fatal(err)
		}
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

// connect starts a session with a ZooKeeper in memory. A program for real servers calls session.Start with their addresses alone.
func connect(ctx context.Context) (s *session.Session, closed func()) {
	zk, address, err := zktest.StartTCP(ctx, "127.0.0.1:0", zktest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err = session.Start(ctx, []string{address}, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return s, func() {
		s.Close(context.WithoutCancel(ctx))
		zk.Close()
	}
}
