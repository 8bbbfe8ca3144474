package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A member that works on its partitions one piece at a time, until it is told to finish.
func Example() {
	s, closed := connect(context.Background())
	defer closed()

	alloc, err := allocator.New(s, "billing", "host-1", allocator.Options{
		Seed: map[string][]int32{"orders": {0}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer leave()
	work := make(chan string, 2)
	work <- "first"
	work <- "second"

	owner, err := ownership.New(alloc, func(ctx context.Context, c *ownership.Claim) error {
		fmt.Printf("own %s:%d\n", c.Topic(), c.Partition())
		for {
			select {
			case piece := <-work:
				if !c.Trusted() { // right before each effect
					return nil
				}
				fmt.Println("did the", piece)
				if piece == "second" {
					leave()
				}
			case <-ctx.Done():
				switch {
				case errors.Is(context.Cause(ctx), ownership.ErrRevoked):
					fmt.Println("told to finish, may commit:", c.Trusted())
				case errors.Is(context.Cause(ctx), ownership.ErrLost):
					fmt.Println("lost, must not commit")
				}
				return nil
			}
		}
	}, ownership.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("left:", owner.Run(ctx))
	// Output:
	// own orders:0
	// did the first
	// did the second
	// told to finish, may commit: true
	// left: <nil>
}

// A write to ZooKeeper that is refused once another owns the partition: a check of the epoch, and a set with the version that
// this owner wrote last.
func ExampleClaim_EpochVersion() {
	s, closed := connect(context.Background())
	defer closed()

	alloc, err := allocator.New(s, "billing", "host-1", allocator.Options{
		Seed: map[string][]int32{"orders": {0}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	owner, err := ownership.New(alloc, func(ctx context.Context, c *ownership.Claim) error {
		defer leave()
		zk := c.Incarnation()
		if _, err := zk.Create(ctx, "/position", nil, session.Persistent); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx) // an owner that goes on when it should not
		write := func(data string, version int32) error {
			_, err := zk.Multi(ctx,
				session.CheckOp(c.EpochPath(), c.EpochVersion()),
				session.SetOp("/position", []byte(data), version))
			return err
		}
		fmt.Println("as owner:", write("100", 0))
		if _, err := zk.Set(ctx, c.EpochPath(), []byte("another"), -1); err != nil { // as another's claim does
			return err
		}
		fmt.Println("as old owner:", errors.Is(write("50", 1), session.ErrBadVersion))
		return nil
	}, ownership.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_ = owner.Run(ctx)
	// Output:
	// as owner: <nil>
	// as old owner: true
}

// A program that is no member of the group asks who owns what.
func ExampleInspect() {
	s, closed := connect(context.Background())
	defer closed()

	alloc, err := allocator.New(s, "billing", "host-1", allocator.Options{
		Seed: map[string][]int32{"orders": {0, 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	owned := make(chan struct{}, 2)
	owner, err := ownership.New(alloc, func(ctx context.Context, _ *ownership.Claim) error {
		owned <- struct{}{}
		<-ctx.Done()
		return nil
	}, ownership.Options{})
	if err != nil {
		log.Fatal(err)
	}
	go owner.Run(context.Background())
	defer owner.Stop(context.Background())
	<-owned
	<-owned

	group, err := ownership.Inspect(context.Background(), s, "billing")
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range group.Partitions {
		fmt.Printf("%s:%d %s %s\n", p.Topic, p.Partition, p.State, p.Owner)
	}
	// Output:
	// orders:0 owned host-1
	// orders:1 owned host-1
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
