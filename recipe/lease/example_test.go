package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Two of three hosts run a job.
func ExampleMultiNonBlockingLease_ObtainAny() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	for _, host := range []string{"host-1", "host-2", "host-3"} {
		m, err := lease.NewMulti(s, "/leases/job", 2, lease.Options{Identifier: host, Duration: time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		held, err := m.ObtainAny(ctx)
		if errors.Is(err, lease.ErrNotObtained) {
			fmt.Println(host, "is not needed")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(host, "has", held.Path())
		defer func() {
			if err := held.Release(ctx); err != nil {
				log.Fatal(err)
			}
		}()
	}
	// Output:
	// host-1 has /leases/job/0
	// host-2 has /leases/job/1
	// host-3 is not needed
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
