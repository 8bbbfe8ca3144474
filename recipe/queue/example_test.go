package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Values come out in the order of their priorities, then in the order in which they were put.
func ExampleQueue() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	q, err := queue.New(s, "/app/queue", queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := q.Put(ctx, []byte("later"), queue.DefaultPriority); err != nil {
		log.Fatal(err)
	}
	path, err := q.Put(ctx, []byte("first"), 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(path)
	for {
		value, err := q.TryGet(ctx)
		if errors.Is(err, queue.ErrEmpty) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", value)
	}
	// Output:
	// /app/queue/entry-010-0000000001
	// first
	// later
}

// A function works on an entry while the queue holds it; Do consumes the entry when the function is done. When the program is to
// end before, the entry goes back to the queue.
func ExampleLockingQueue_Do() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, closed := connect(ctx)
	defer closed()

	q, err := queue.NewLocking(s, "/app/locking", queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := q.Put(ctx, []byte("job"), queue.DefaultPriority); err != nil {
		log.Fatal(err)
	}
	err = q.Do(ctx, func(ctx context.Context) error {
		// Hold(ctx).Valid() right before each effect; return nil when the work is done, or an error soon after ctx has ended.
		held := queue.Hold(ctx)
		fmt.Printf("working on %s, may go on: %t\n", held.Value(), ctx.Err() == nil && held.Valid())
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, context.Canceled) { // Canceled: the signal came while it waited
		log.Fatal(err)
	}
	n, err := q.Len(context.WithoutCancel(ctx))
	fmt.Println("left:", n, err)
	// Output:
	// working on job, may go on: true
	// left: 0 <nil>
}

// A loop consumes each entry at the end of its body, and gives back the entry at which the body is left.
func ExampleLockingQueue_All() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	q, err := queue.NewLocking(s, "/app/locking", queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := q.PutAll(ctx, [][]byte{[]byte("one"), []byte("two"), []byte("stop")}, queue.DefaultPriority); err != nil {
		log.Fatal(err)
	}
	for held, err := range q.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if string(held.Value()) == "stop" {
			break
		}
		fmt.Printf("%s\n", held.Value())
	}
	n, err := q.Len(ctx)
	fmt.Println("left:", n, err)
	// Output:
	// one
	// two
	// left: 1 <nil>
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
