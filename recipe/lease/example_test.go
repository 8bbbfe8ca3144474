package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// An hourly job stays on one host, and another takes it over when that dies.
func ExampleNonBlockingLease_Do() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, closed := connect(ctx)
	defer closed()

	for _, host := range []string{"host-1", "host-2", "host-1"} {
		l, err := lease.New(s, "/db_leases/hourly_cleanup", lease.Options{
			Identifier: "DB hourly cleanup on " + host,
			Duration:   70 * time.Minute,
		})
		if err != nil {
			log.Fatal(err)
		}
		err = l.Do(ctx, func(ctx context.Context) error {
			// Hold(ctx).Valid() right before each effect; return when the job is done, or soon after ctx has ended.
			fmt.Println(host, "works, may go on:", ctx.Err() == nil && lease.Hold(ctx).Valid())
			if ctx.Err() != nil {
				return ctx.Err() // the job is not done: Do releases the lease, for another host
			}
			lease.Hold(ctx).Detach() // the job is done; the lease runs on, for the next hour
			return nil
		})
		if taken, ok := errors.AsType[*lease.TakenError](err); ok {
			fmt.Println(host, "does nothing:", taken.Record.Holder)
			continue
		}
		if err != nil && !errors.Is(err, context.Canceled) { // Canceled: the signal came before the lease
			log.Fatal(err)
		}
	}
	// Output:
	// host-1 works, may go on: true
	// host-2 does nothing: DB hourly cleanup on host-1
	// host-1 works, may go on: true
}

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
