package barrier_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
)

// One process closes the barrier, others wait until it is opened.
func ExampleBarrier_Wait() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	b, err := barrier.New(s, "/app/barrier", barrier.Options{})
	if err != nil {
		panic(err)
	}
	if err := b.Create(ctx); err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.Wait(ctx); err != nil {
			panic(err)
		}
		fmt.Println("open")
	})
	if _, err := b.Remove(ctx); err != nil {
		panic(err)
	}
	wg.Wait()
	// Output: open
}

// Two begin together, and go on when both have finished.
func ExampleDoubleBarrier_Enter() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	var wg, work sync.WaitGroup
	work.Add(2)
	for range 2 {
		wg.Go(func() {
			d, err := barrier.NewDouble(s, "/app/double", 2, barrier.DoubleOptions{})
			if err != nil {
				panic(err)
			}
			m, err := d.Enter(ctx)
			if err != nil {
				panic(err)
			}
			fmt.Println("working, lost:", m.Context().Err() != nil)
			work.Done()
			work.Wait() // each takes longer than the other needs to see that both are there
			if err := m.Leave(ctx); err != nil {
				panic(err)
			}
		})
	}
	wg.Wait()
	fmt.Println("both have left")
	// Output:
	// working, lost: false
	// working, lost: false
	// both have left
}
