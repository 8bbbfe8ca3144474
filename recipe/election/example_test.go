package election_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/recipe/election"
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

// Run blocks until the election is won, leads, and returns what the function returns.
func ExampleElection_Run() {
	s, stop := startZooKeeper()
	defer stop()
	e, err := election.New(s, "/electionpath", election.Options{Identifier: "my-identifier"})
	if err != nil {
		panic(err)
	}

	err = e.Run(context.Background(), func(ctx context.Context) error {
		fmt.Println("leading, lost:", ctx.Err() != nil)
		return nil // when the work is done, or soon after ctx has ended
	})
	fmt.Println(err)
	// Output:
	// leading, lost: false
	// <nil>
}

// Observe tells who leads, without standing for election.
func ExampleElection_Observe() {
	s, stop := startZooKeeper()
	defer stop()
	e, err := election.New(s, "/electionpath", election.Options{Identifier: "my-identifier"})
	if err != nil {
		panic(err)
	}

	err = e.Run(context.Background(), func(ctx context.Context) error {
		for leader, err := range e.Observe(ctx) {
			if err != nil {
				return err
			}
			fmt.Println("leader:", leader.Identifier)
			break // a real observer goes on
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: leader: my-identifier
}
