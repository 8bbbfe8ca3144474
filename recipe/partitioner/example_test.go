package partitioner_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Run calls a function with our items. Its context ends when they are to be given up, and when the program is told to end.
func ExampleSetPartitioner_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, closed := connect(ctx)
	defer closed()

	p, err := partitioner.New(s, "/work_queues", []string{"queue-1", "queue-2", "queue-3"}, partitioner.Options{
		TimeBoundary: 10 * time.Millisecond, // 30 s by default
	})
	if err != nil {
		log.Fatal(err)
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
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	qp, err := partitioner.New(s, "/work_queues", []string{"queue-1", "queue-2", "queue-3"}, partitioner.Options{
		TimeBoundary: 10 * time.Millisecond, // 30 s by default
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := qp.Start(ctx); err != nil {
		log.Fatal(err)
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
			log.Fatal(err)
		}
	}
	if err := qp.Finish(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// working on queue-1
	// working on queue-2
	// working on queue-3
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
