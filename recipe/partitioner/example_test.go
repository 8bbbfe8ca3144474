package partitioner_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// startZooKeeper runs an in-memory server and a session on it, for the examples.
func startZooKeeper() (s *session.Session, stop func()) {
	server, network := zktest.NewServer(zktest.Options{}), zktest.NewNetwork()
	listener, err := network.Listen("zk:2181")
	if err != nil {
		panic(err)
	}
	s, err = session.New([]string{"zk:2181"}, session.Options{Dial: network.Dial})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	go func() { ran <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := errors.Join(<-ran, server.Close(), <-served); err != nil {
			panic(err)
		}
	}
}

// Run calls a function with our items, under a context that ends when they are to be given
// up.
func ExampleSetPartitioner_Run() {
	s, stop := startZooKeeper()
	defer stop()
	p, err := partitioner.New(s, "/work_queues", []string{"queue-1", "queue-2", "queue-3"}, partitioner.Options{
		TimeBoundary: 10 * time.Millisecond, // 30 s by default
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = p.Run(ctx, func(ctx context.Context, items []string) error {
		fmt.Println("working on", items)
		cancel() // enough
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
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
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
			err = qp.WaitForAcquire(ctx)
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
