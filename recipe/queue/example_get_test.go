package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// An entry is held while it is worked on, and consumed when that is done. When the program is told to end before, the entry
// goes back to the queue.
func ExampleLockingQueue_Get() {
	zk, address, err := zktest.StartTCP(context.Background(), "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, address); err != nil && !errors.Is(err, context.Canceled) { // Canceled: the signal came while it waited
		log.Fatal(err)
	}
	fmt.Println("left:", zk.Children("/app/locking/entries"))
	// Output:
	// working on job, may go on: true
	// left: []
}

func run(ctx context.Context, servers ...string) error {
	s, err := session.Start(ctx, servers, session.Options{})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx)) // the session outlives ctx, so that the entry can be given back
	q, err := queue.NewLocking(s, "/app/locking", queue.Options{})
	if err != nil {
		return err
	}
	if _, err := q.Put(ctx, []byte("job"), queue.DefaultPriority); err != nil {
		return err
	}
	held, err := q.Get(ctx) // waits, until ctx ends
	if err != nil {
		return err
	}
	working, cancel := context.WithCancel(held.Context()) // ends when the entry can't be trusted to be ours any more
	defer context.AfterFunc(ctx, cancel)()                // and when ctx ends
	done := work(working, held)
	finishing, finished := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer finished()
	if !done {
		return held.Release(finishing)
	}
	return held.Consume(finishing)
}

// work returns soon after ctx has ended, and whether the work is done.
func work(ctx context.Context, held *queue.Held) (done bool) {
	valid := ctx.Err() == nil && held.Valid() // right before each effect
	fmt.Printf("working on %s, may go on: %t\n", held.Value(), valid)
	return valid
}
