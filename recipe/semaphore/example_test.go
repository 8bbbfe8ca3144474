package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// LeaseHolders tells who holds the leases.
func ExampleSemaphore_LeaseHolders() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	for i := range 2 {
		sem, err := semaphore.New(s, "/leasepath", semaphore.Options{Identifier: fmt.Sprint("worker-", i), MaxLeases: 2})
		if err != nil {
			log.Fatal(err)
		}
		held, err := sem.TryAcquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		defer held.Release(ctx)
	}
	third, err := semaphore.New(s, "/leasepath", semaphore.Options{MaxLeases: 2})
	if err != nil {
		log.Fatal(err)
	}
	_, err = third.TryAcquire(ctx)
	fmt.Println(errors.Is(err, semaphore.ErrNotAcquired))
	holders, err := third.LeaseHolders(ctx)
	fmt.Println(len(holders), err)
	// Output:
	// true
	// 2 <nil>
}

// Do works under a lease. The context of the work ends when the lease can't be trusted any more, and when the program is told to
// end. Then Do releases the lease and returns nil.
func ExampleSemaphore_Do() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, closed := connect(ctx)
	defer closed()

	sem, err := semaphore.New(s, "/leasepath", semaphore.Options{Identifier: "my-identifier", MaxLeases: 3})
	if err != nil {
		log.Fatal(err)
	}
	err = sem.Do(ctx, func(ctx context.Context) error {
		// Hold(ctx).Valid() right before each effect; return when the work is done, or soon after ctx has ended.
		fmt.Println("working, may go on:", ctx.Err() == nil && semaphore.Hold(ctx).Valid())
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) { // Canceled: the signal came while it waited
		log.Fatal(err)
	}
	// Output: working, may go on: true
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
