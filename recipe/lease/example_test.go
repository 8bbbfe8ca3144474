package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
)

// An hourly job stays on one host, and another takes it over when that dies.
func ExampleNonBlockingLease_Obtain() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

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
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

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
