package sharedset_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/sharedset"
	"github.com/kielgo/kiel/zktest"
)

// startZooKeeper runs an in-memory server and a session on it, for the example.
func startZooKeeper() (server *zktest.Server, s *session.Session, stop func()) {
	server = zktest.NewServer(zktest.Options{})
	network := zktest.NewNetwork()
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
	return server, s, func() {
		cancel()
		if err := errors.Join(<-ran, server.Close(), <-served); err != nil {
			panic(err)
		}
	}
}

// A set is changed by one member and watched by another.
func Example() {
	server, s, stop := startZooKeeper()
	defer stop()
	set, err := sharedset.New(s, "/kiel/groups/demo/partitions", sharedset.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()

	added, err := set.Add(ctx, "orders:1", "orders:0", "orders:1")
	if err != nil {
		panic(err)
	}
	data, _, _ := server.Get("/kiel/groups/demo/partitions")
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
