package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Run waits until the election is won, leads, and returns what the function returns. The function's context ends when we may not
// lead any more, and when the program is told to end.
func ExampleElection_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, closed := connect(ctx)
	defer closed()

	e, err := election.New(s, "/electionpath", election.Options{Identifier: "my-identifier"})
	if err != nil {
		log.Fatal(err)
	}

	err = e.Run(ctx, func(ctx context.Context) error {
		// Hold(ctx).Valid() right before each effect; return when the work is done, or soon after ctx has ended.
		fmt.Println("leading, may go on:", ctx.Err() == nil && election.Hold(ctx).Valid())
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) { // Canceled: the signal came while it waited
		log.Fatal(err)
	}
	// Output: leading, may go on: true
}

// Observe yields the leader without being a candidate.
func ExampleElection_Observe() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	e, err := election.New(s, "/electionpath", election.Options{Identifier: "my-identifier"})
	if err != nil {
		log.Fatal(err)
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
		log.Fatal(err)
	}
	// Output: leader: my-identifier
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
