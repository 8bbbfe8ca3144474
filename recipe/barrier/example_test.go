package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kielgo/kiel/recipe/barrier"
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

// One process closes the barrier, others wait until it is opened.
func ExampleBarrier_Wait() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
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
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
	var wg sync.WaitGroup
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
