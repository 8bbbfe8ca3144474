package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
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

// Work under the hold's context, and release when the work has returned.
func ExampleLock_Acquire() {
	s, stop := startZooKeeper()
	defer stop()
	l, err := lock.New(s, "/app/lock", lock.Options{Identifier: "worker-1"})
	if err != nil {
		panic(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	held, err := l.Acquire(ctx)
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
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
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
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
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
