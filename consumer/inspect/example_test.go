package inspect_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A program prints what is wrong with a group. This one looks at ZooKeeper alone, where it finds the set of a group that has lost
// all members.
func Example() {
	ctx := context.Background()
	zk, address, err := zktest.StartTCP(ctx, "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	for _, path := range []string{"/kiel", "/kiel/groups", "/kiel/groups/billing", "/kiel/groups/billing/members"} {
		if err := zk.Create(path, nil); err != nil {
			log.Fatal(err)
		}
	}

	in, err := inspect.Open(ctx, inspect.Sources{
		Servers: []string{address}, Session: session.Options{Logger: slog.New(slog.DiscardHandler)}, // Brokers: of Kafka, for offsets
	})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close(ctx)
	report, err := in.Look(ctx, "billing", inspect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range report.Findings {
		fmt.Printf("%s: %s\n", f.Kind, f.Text)
	}
	// Output:
	// no-members: the group has no members: nobody consumes
}
