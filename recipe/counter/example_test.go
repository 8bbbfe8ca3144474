package counter_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/recipe/counter"
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

// A counter of integers.
func ExampleNew() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
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
	s, stop := startZooKeeper()
	defer stop()
	c, err := counter.NewFloat(s, "/float", counter.Options[float64]{Default: 1.0})
	if err != nil {
		panic(err)
	}
	v, err := c.Add(context.Background(), 2.0)
	if err != nil {
		panic(err)
	}
	last, _ := c.Last()
	fmt.Println(v, last.Pre, last.Post)
	// Output: 3 1 3
}

// A counter that Curator's SharedCount uses, too.
func ExampleNewCurator() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
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
	s, stop := startZooKeeper()
	defer stop()
	c, err := counter.New(s, "/visits", counter.Options[int64]{})
	if err != nil {
		panic(err)
	}
	v, err := c.Add(context.Background(), 1)
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
