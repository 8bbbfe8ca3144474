package counter_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/session"
)

// A counter of integers.
func ExampleNew() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	c, err := counter.New(s, "/int", counter.Options[int64]{})
	if err != nil {
		panic(err)
	}
	if _, err := c.Add(ctx, 2); err != nil {
		panic(err)
	}
	v, err := c.Subtract(ctx, 1)
	if err != nil {
		panic(err)
	}
	last, _ := c.Last()
	fmt.Println(v, last.Pre, last.Post)
	// Output: 1 2 1
}

// A counter of floats, with a default.
func ExampleNewFloat() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	c, err := counter.NewFloat(s, "/float", counter.Options[float64]{Default: 1.0})
	if err != nil {
		panic(err)
	}
	v, err := c.Add(ctx, 2.0)
	if err != nil {
		panic(err)
	}
	last, _ := c.Last()
	fmt.Println(v, last.Pre, last.Post)
	// Output: 3 1 3
}

// A counter that Curator's SharedCount uses, too.
func ExampleNewCurator() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	c, err := counter.NewCurator(s, "/curator", counter.Options[int32]{})
	if err != nil {
		panic(err)
	}
	if _, err := c.Add(ctx, 2); err != nil {
		panic(err)
	}
	v, err := c.Subtract(ctx, 1)
	if err != nil {
		panic(err)
	}
	last, _ := c.Last()
	fmt.Println(v, last.Pre, last.Post)
	// Output: 1 2 1
}

// A change whose outcome is not known is not repeated: that is for the caller to decide.
func ExampleCounter_Add() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	c, err := counter.New(s, "/visits", counter.Options[int64]{})
	if err != nil {
		panic(err)
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
