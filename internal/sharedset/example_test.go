package sharedset_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A set is changed by one member and watched by another.
func Example() {
	zk, address, err := zktest.StartTCP(context.Background(), "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	s, err := session.Start(context.Background(), []string{address}, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(context.Background())

	set, err := sharedset.New(s, "/kiel/groups/demo/partitions", sharedset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()

	added, err := set.Add(ctx, "orders:1", "orders:0", "orders:1")
	if err != nil {
		log.Fatal(err)
	}
	data, _, _ := zk.Get("/kiel/groups/demo/partitions")
	fmt.Printf("added %d: %s\n", added, data)
	for view := range set.Updates(ctx) {
		if len(view.Items) == 2 {
			fmt.Println("seen", view.Items)
			break
		}
	}
	cancel()
	fmt.Println("ended with", <-done)
	// Output:
	// added 2: ["orders:0", "orders:1"]
	// seen [orders:0 orders:1]
	// ended with <nil>
}
