package counter_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A counter of integers.
func ExampleNew() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	c, err := counter.New(s, "/int", counter.Options[int64]{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Add(ctx, 2); err != nil {
		log.Fatal(err)
	}
	v, err := c.Subtract(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	last, _ := c.Last()
	fmt.Println(v, last.Pre, last.Post)
	// Output: 1 2 1
}

// A counter of floats, with a default.
func ExampleNewFloat() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	c, err := counter.NewFloat(s, "/float", counter.Options[float64]{Default: 1.0})
	if err != nil {
		log.Fatal(err)
	}
	v, err := c.Add(ctx, 2.0)
	if err != nil {
		log.Fatal(err)
	}
	last, _ := c.Last()
	fmt.Println(v, last.Pre, last.Post)
	// Output: 3 1 3
}

// A counter that Curator's SharedCount uses, too.
func ExampleNewCurator() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	c, err := counter.NewCurator(s, "/curator", counter.Options[int32]{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Add(ctx, 2); err != nil {
		log.Fatal(err)
	}
	v, err := c.Subtract(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	last, _ := c.Last()
	fmt.Println(v, last.Pre, last.Post)
	// Output: 1 2 1
}

// A change whose outcome is unknown is not repeated: the caller decides.
func ExampleCounter_Add() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	c, err := counter.New(s, "/visits", counter.Options[int64]{})
	if err != nil {
		log.Fatal(err)
	}
	v, err := c.Add(ctx, 1)
	switch {
	case errors.Is(err, session.ErrUncertain):
		fmt.Println("perhaps counted")
	case err != nil:
		fmt.Println("not counted:", err)
	default:
		fmt.Println("visit", v)
	}
	// Output: visit 1
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
