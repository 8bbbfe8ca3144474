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
func ExampleNonBlockingLease_Obtain() {
	zk, address, err := zktest.StartTCP(context.Background(), "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, host := range []string{"host-1", "host-2", "host-1"} {
		if err := run(ctx, host, address); err != nil && !errors.Is(err, context.Canceled) { // Canceled: the signal came while it waited
			log.Fatal(err)
		}
	}
	// Output:
	// host-1 works, may go on: true
	// host-2 does nothing: DB hourly cleanup on host-1
	// host-1 works, may go on: true
}

// run does the job of a host if no other one has its lease.
func run(ctx context.Context, host string, servers ...string) error {
	s, err := session.Start(ctx, servers, session.Options{})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx)) // the session outlives ctx, so that the lease can be released
	l, err := lease.New(s, "/db_leases/hourly_cleanup", lease.Options{
		Identifier: "DB hourly cleanup on " + host,
		Duration:   70 * time.Minute,
	})
	if err != nil {
		return err
	}
	held, err := l.Obtain(ctx)
	if taken, ok := errors.AsType[*lease.TakenError](err); ok {
		fmt.Println(host, "does nothing:", taken.Record.Holder)
		return nil
	}
	if err != nil {
		return err
	}
	working, cancel := context.WithCancel(held.Context()) // ends when the lease can't be trusted any more
	defer context.AfterFunc(ctx, cancel)()                // and when ctx ends
	if cleanUp(working, held, host) {
		held.Detach() // the lease runs on, for the next hour
		return nil
	}
	releasing, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	return held.Release(releasing) // for another host
}

// cleanUp returns soon after ctx has ended, and whether the work is done.
func cleanUp(ctx context.Context, held *lease.Held, host string) (done bool) {
	valid := ctx.Err() == nil && held.Valid() // right before each effect
	fmt.Println(host, "works, may go on:", valid)
	return valid
}
