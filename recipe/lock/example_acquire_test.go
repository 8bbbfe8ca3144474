package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Work with a context that ends when the lock can't be trusted any more, and when the program is told to end. Release the lock
// when the work has returned, with a context that has not ended.
func ExampleLock_Acquire() {
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
	// Output: working, may go on: true
}

func run(ctx context.Context, servers ...string) error {
	s, err := session.Start(ctx, servers, session.Options{})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx)) // the session outlives ctx, so that the lock can be released
	l, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-1"})
	if err != nil {
		return err
	}
	held, err := l.Acquire(ctx) // waits, until ctx ends
	if err != nil {
		return err
	}
	working, cancel := context.WithCancel(held.Context()) // ends when the lock can't be trusted any more
	defer context.AfterFunc(ctx, cancel)()                // and when ctx ends
	work(working, held)
	releasing, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	return held.Release(releasing)
}

// work returns soon after ctx has ended.
func work(ctx context.Context, held *lock.Held) {
	fmt.Println("working, may go on:", ctx.Err() == nil && held.Valid()) // right before each effect
}
