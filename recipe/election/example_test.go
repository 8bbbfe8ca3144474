package election_test

import (
	"context"
	"fmt"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/session"
)

// Run blocks until the election is won, leads, and returns what the function returns.
func ExampleElection_Run() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	e, err := election.New(s, "/electionpath", election.Options{Identifier: "my-identifier"})
	if err != nil {
		panic(err)
	}

	err = e.Run(ctx, func(ctx context.Context) error {
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
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	e, err := election.New(s, "/electionpath", election.Options{Identifier: "my-identifier"})
	if err != nil {
		panic(err)
	}

	err = e.Run(ctx, func(ctx context.Context) error {
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
