package partitioner_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

// Run calls a function with our items, under a context that ends when they are to be given
// up.
func ExampleSetPartitioner_Run() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	p, err := partitioner.New(s, "/work_queues", []string{"queue-1", "queue-2", "queue-3"}, partitioner.Options{
		TimeBoundary: 10 * time.Millisecond, // 30 s by default
	})
	if err != nil {
		panic(err)
	}
	working, enough := context.WithCancel(ctx)
	err = p.Run(working, func(ctx context.Context, items []string) error {
		fmt.Println("working on", items)
		enough()
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// working on [queue-1 queue-2 queue-3]
	// <nil>
}

// The example of kazoo's documentation, with the four states.
func ExampleSetPartitioner_Start() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	qp, err := partitioner.New(s, "/work_queues", []string{"queue-1", "queue-2", "queue-3"}, partitioner.Options{
		TimeBoundary: 10 * time.Millisecond, // 30 s by default
	})
	if err != nil {
		panic(err)
	}
	if err := qp.Start(ctx); err != nil {
		panic(err)
	}
	for worked := false; !worked; {
		switch {
		case qp.Failed():
			panic("lost or unable to acquire partition")
		case qp.MustRelease():
			err = qp.ReleaseSet(ctx)
		case qp.Acquired():
			for _, partition := range qp.Items() {
				fmt.Println("working on", partition)
			}
			worked = true
		case qp.Allocating():
			_, err = qp.WaitForAcquire(ctx) // for 30 s at most, then we look again
		}
		if err != nil {
			panic(err)
		}
	}
	if err := qp.Finish(ctx); err != nil {
		panic(err)
	}
	// Output:
	// working on queue-1
	// working on queue-2
	// working on queue-3
}
