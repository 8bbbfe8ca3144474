package barrier_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// One process closes the barrier, others wait until it is opened.
func ExampleBarrier_Wait() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	b, err := barrier.New(s, "/app/barrier", barrier.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := b.Create(ctx); err != nil {
		log.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println("open")
	})
	if _, err := b.Remove(ctx); err != nil {
		log.Fatal(err)
	}
	wg.Wait()
	// Output: open
}

// Two begin together, and go on when both have finished. Work with the context of the member, joined with that of the program as
// in the example of package lock.
func ExampleDoubleBarrier_Enter() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	var wg, work sync.WaitGroup
	work.Add(2)
	for range 2 {
		wg.Go(func() {
			d, err := barrier.NewDouble(s, "/app/double", 2, barrier.DoubleOptions{})
			if err != nil {
				log.Fatal(err)
			}
			m, err := d.Enter(ctx)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("working, lost:", m.Context().Err() != nil)
			work.Done()
			work.Wait() // each takes longer than the other needs to see that both are there
			if err := m.Leave(ctx); err != nil {
				log.Fatal(err)
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
