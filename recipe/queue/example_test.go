package queue_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// Values come out in the order of their priorities, then in the order in which they were put.
func ExampleQueue() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	q, err := queue.New(s, "/app/queue", queue.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := q.Put(ctx, []byte("later"), queue.DefaultPriority); err != nil {
		panic(err)
	}
	path, err := q.Put(ctx, []byte("first"), 10)
	if err != nil {
		panic(err)
	}
	fmt.Println(path)
	for {
		value, err := q.TryGet(ctx)
		if errors.Is(err, queue.ErrEmpty) {
			break
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s\n", value)
	}
	// Output:
	// /app/queue/entry-010-0000000001
	// first
	// later
}

// An entry is held while it is worked on, and consumed when that is done.
func ExampleLockingQueue_Get() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	q, err := queue.NewLocking(s, "/app/locking", queue.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := q.Put(ctx, []byte("job"), queue.DefaultPriority); err != nil {
		panic(err)
	}
	held, err := q.Get(ctx)
	if err != nil {
		panic(err)
	}
	work := func(ctx context.Context, job []byte) { fmt.Printf("%s, lost: %v\n", job, ctx.Err() != nil) }
	work(held.Context(), held.Value())
	if err := held.Consume(ctx); err != nil {
		panic(err)
	}
	n, err := q.Len(ctx)
	fmt.Println("left:", n, err)
	// Output:
	// job, lost: false
	// left: 0 <nil>
}

// A loop that consumes each entry at the end of its body, and gives back the one at which it
// is left.
func ExampleLockingQueue_All() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	q, err := queue.NewLocking(s, "/app/locking", queue.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := q.PutAll(ctx, [][]byte{[]byte("one"), []byte("two"), []byte("stop")}, queue.DefaultPriority); err != nil {
		panic(err)
	}
	for held, err := range q.All(ctx) {
		if err != nil {
			panic(err)
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
