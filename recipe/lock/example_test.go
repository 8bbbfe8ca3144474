package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Work under the hold's context, and release when the work has returned.
func ExampleLock_Acquire() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	l, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-1"})
	if err != nil {
		panic(err)
	}

	patience, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	held, err := l.Acquire(patience)
	if err != nil {
		panic(err)
	}
	work := func(ctx context.Context) { fmt.Println("working, lost:", ctx.Err() != nil) }
	work(held.Context())
	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	fmt.Println(context.Cause(held.Context()))
	// Output:
	// working, lost: false
	// lock: released
}

// A lock that is taken tells by whom.
func ExampleLock_TryAcquire() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	one, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-1"})
	if err != nil {
		panic(err)
	}
	two, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-2"})
	if err != nil {
		panic(err)
	}

	held, err := one.TryAcquire(ctx)
	if err != nil {
		panic(err)
	}
	_, err = two.TryAcquire(ctx)
	if blocked, ok := errors.AsType[*lock.BlockedError](err); ok {
		fmt.Println("held by", blocked.Identifier)
	}
	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	// Output: held by worker-1
}

// Readers share the lock; a writer has it alone.
func ExampleNewRead() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	read, err := lock.NewRead(s, "/app/rwlock", lock.Options{Identifier: "reader"})
	if err != nil {
		panic(err)
	}
	write, err := lock.NewWrite(s, "/app/rwlock", lock.Options{Identifier: "writer"})
	if err != nil {
		panic(err)
	}

	one, err := read.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	two, err := read.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	_, err = write.TryAcquire(ctx)
	fmt.Println("a writer beside readers:", !errors.Is(err, lock.ErrNotAcquired))
	for _, held := range []*lock.Held{one, two} {
		if err := held.Release(ctx); err != nil {
			panic(err)
		}
	}
	held, err := write.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("the writer has it:", write.Held())
	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	// Output:
	// a writer beside readers: false
	// the writer has it: true
}

// A writer waits for the readers that came before it, and has the lock alone.
func ExampleNewWrite() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	l, err := lock.NewWrite(s, "/lockpath", lock.Options{Identifier: "my-identifier"})
	if err != nil {
		panic(err)
	}
	held, err := l.Acquire(ctx) // waits
	if err != nil {
		panic(err)
	}
	list, err := l.Contenders(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(list), list[0].Identifier, held.Valid())
	if err := held.Release(ctx); err != nil {
		panic(err)
	}
	// Output: 1 my-identifier true
}
