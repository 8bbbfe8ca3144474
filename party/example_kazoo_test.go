package party_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// Members of kazoo's Party, Python ones among them, see each other.
func ExampleKazooParty() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	s, err := session.New(zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.Run(ctx)

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
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	s, err := session.New(zk.Addrs, session.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.Run(ctx)

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
