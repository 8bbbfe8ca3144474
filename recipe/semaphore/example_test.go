package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// Work under the lease's context, and release when the work has returned. This is the
// example of kazoo's documentation.
func ExampleSemaphore_Acquire() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	sem, err := semaphore.New(s, "/leasepath", semaphore.Options{Identifier: "my-identifier", MaxLeases: 3})
	if err != nil {
		panic(err)
	}

	patience, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	held, err := sem.Acquire(patience) // blocks waiting for lock acquisition
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
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

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
