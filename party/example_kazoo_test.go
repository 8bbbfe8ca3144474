package party_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/party"
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

// Members of kazoo's Party, Python ones among them, see each other.
func ExampleKazooParty() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
	one, err := party.NewKazooParty(s, "/app/party", party.KazooOptions{Identifier: "host-1"})
	if err != nil {
		panic(err)
	}
	two, err := party.NewKazooParty(s, "/app/party", party.KazooOptions{Identifier: "host-2"})
	if err != nil {
		panic(err)
	}
	if err := errors.Join(one.Join(ctx), two.Join(ctx)); err != nil {
		panic(err)
	}
	members, err := one.WaitForMembers(ctx, 2)
	fmt.Println(members, err)
	if err := one.Leave(ctx); err != nil {
		panic(err)
	}
	members, err = two.Members(ctx)
	fmt.Println(members, err)
	// Output:
	// [host-1 host-2] <nil>
	// [host-2] <nil>
}

// In a ShallowParty the identifiers are in the names of the znodes.
func ExampleShallowParty() {
	s, stop := startZooKeeper()
	defer stop()
	ctx := context.Background()
	p, err := party.NewShallowParty(s, "/app/party", party.KazooOptions{Identifier: "host-1"})
	if err != nil {
		panic(err)
	}
	if err := p.Join(ctx); err != nil {
		panic(err)
	}
	fmt.Println(p.IsMember())
	members, err := p.Members(ctx)
	fmt.Println(members, err)
	// Output:
	// true
	// [host-1] <nil>
}
