package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Do works under the lock. The context of the work ends when the lock can't be trusted any more, and when the program is told to
// end. Then Do releases the lock and returns nil.
func ExampleLock_Do() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, closed := connect(ctx)
	defer closed()

	l, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	err = l.Do(ctx, func(ctx context.Context) error {
		// Hold(ctx).Valid() right before each effect; return when the work is done, or soon after ctx has ended.
		fmt.Println("working, may go on:", ctx.Err() == nil && lock.Hold(ctx).Valid())
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) { // Canceled: the signal came while it waited
		log.Fatal(err)
	}
	// Output: working, may go on: true
}

// A lock that is taken tells by whom.
func ExampleLock_TryAcquire() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	one, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	two, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-2"})
	if err != nil {
		log.Fatal(err)
	}

	held, err := one.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = two.TryAcquire(ctx)
	if blocked, ok := errors.AsType[*recipe.BlockedError](err); ok {
		fmt.Println("held by", blocked.Identifier)
	}
	if err := held.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: held by worker-1
}

// Readers share the lock; a writer has it alone.
func ExampleNewRead() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	read, err := lock.NewRead(s, "/app/rwlock", lock.Options{Identifier: "reader"})
	if err != nil {
		log.Fatal(err)
	}
	write, err := lock.NewWrite(s, "/app/rwlock", lock.Options{Identifier: "writer"})
	if err != nil {
		log.Fatal(err)
	}

	one, err := read.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := read.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = write.TryAcquire(ctx)
	fmt.Println("a writer beside readers:", !errors.Is(err, lock.ErrNotAcquired))
	for _, held := range []*lock.Held{one, two} {
		if err := held.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	held, err := write.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the writer has it:", write.Held())
	if err := held.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a writer beside readers: false
	// the writer has it: true
}

// A writer waits for the readers that came before it, and has the lock alone.
func ExampleNewWrite() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	l, err := lock.NewWrite(s, "/lockpath", lock.Options{Identifier: "my-identifier"})
	if err != nil {
		log.Fatal(err)
	}
	held, err := l.Acquire(ctx) // waits
	if err != nil {
		log.Fatal(err)
	}
	list, err := l.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(list), list[0].Identifier, held.Valid())
	if err := held.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 1 my-identifier true
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
