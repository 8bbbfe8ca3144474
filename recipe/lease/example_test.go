package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
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

// An hourly job stays on one host, and another takes it over when that dies.
func ExampleNonBlockingLease_Obtain() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
	for _, host := range []string{"host-1", "host-2", "host-1"} {
		l, err := lease.New(s, "/db_leases/hourly_cleanup", lease.Options{
			Identifier: "DB hourly cleanup on " + host,
			Duration:   70 * time.Minute,
		})
		if err != nil {
			panic(err)
		}
		held, err := l.Obtain(ctx)
		if taken, ok := errors.AsType[*lease.TakenError](err); ok {
			fmt.Println(host, "does nothing:", taken.Record.Holder)
			continue
		}
		if err != nil {
			panic(err)
		}
		hourlyCleanup := func(ctx context.Context) { fmt.Println(host, "works, lost:", ctx.Err() != nil) }
		hourlyCleanup(held.Context())
		held.Detach() // the lease runs on, for the next hour
	}
	// Output:
	// host-1 works, lost: false
	// host-2 does nothing: DB hourly cleanup on host-1
	// host-1 works, lost: false
}

// Two of three hosts run a job.
func ExampleMultiNonBlockingLease_ObtainAny() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
	for _, host := range []string{"host-1", "host-2", "host-3"} {
		m, err := lease.NewMulti(s, "/leases/job", 2, lease.Options{Identifier: host, Duration: time.Minute})
		if err != nil {
			panic(err)
		}
		held, err := m.ObtainAny(ctx)
		if errors.Is(err, lease.ErrNotObtained) {
			fmt.Println(host, "is not needed")
			continue
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(host, "has", held.Path())
		defer func() {
			if err := held.Release(ctx); err != nil {
				panic(err)
			}
		}()
	}
	// Output:
	// host-1 has /leases/job/0
	// host-2 has /leases/job/1
	// host-3 is not needed
}
