package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/recipe/semaphore"
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

// Work under the lease's context, and release when the work has returned. This is the
// example of kazoo's documentation.
func ExampleSemaphore_Acquire() {
	s, stop := startZooKeeper()
	defer stop()
	sem, err := semaphore.New(s, "/leasepath", semaphore.Options{Identifier: "my-identifier", MaxLeases: 3})
	if err != nil {
		panic(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	held, err := sem.Acquire(ctx) // blocks waiting for lock acquisition
	if err != nil {
		panic(err)
	}
	work := func(ctx context.Context) { fmt.Println("working, lost:", ctx.Err() != nil) }
	work(held.Context())
	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	// Output: working, lost: false
}

// LeaseHolders tells who holds the leases.
func ExampleSemaphore_LeaseHolders() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
	for i := range 2 {
		sem, err := semaphore.New(s, "/leasepath", semaphore.Options{Identifier: fmt.Sprint("worker-", i), MaxLeases: 2})
		if err != nil {
			panic(err)
		}
		held, err := sem.TryAcquire(ctx)
		if err != nil {
			panic(err)
		}
		defer held.Release(ctx)
	}
	third, err := semaphore.New(s, "/leasepath", semaphore.Options{MaxLeases: 2})
	if err != nil {
		panic(err)
	}
	_, err = third.TryAcquire(ctx)
	fmt.Println(errors.Is(err, semaphore.ErrNotAcquired))
	holders, err := third.LeaseHolders(ctx)
	fmt.Println(len(holders), err)
	// Output:
	// true
	// 2 <nil>
}
