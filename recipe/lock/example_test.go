package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

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
	if blocked, ok := errors.AsType[*lock.BlockedError](err); ok {
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

// connect starts a session with a ZooKeeper in memory. A program for real servers calls session.Start with their addresses
// alone.
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
