package party_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Members of kazoo's Party, Python ones among them, see each other.
func ExampleKazooParty() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	one, err := party.NewKazooParty(s, "/app/party", party.KazooOptions{Identifier: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	two, err := party.NewKazooParty(s, "/app/party", party.KazooOptions{Identifier: "host-2"})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(one.Join(ctx), two.Join(ctx)); err != nil {
		log.Fatal(err)
	}
	members, err := one.WaitForMembers(ctx, 2)
	fmt.Println(members, err)
	if err := one.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	members, err = two.Members(ctx)
	fmt.Println(members, err)
	// Output:
	// [host-1 host-2] <nil>
	// [host-2] <nil>
}

// In a ShallowParty the identifiers are in the names of the znodes.
func ExampleShallowParty() {
	ctx := context.Background()
	s, closed := connect(ctx)
	defer closed()

	p, err := party.NewShallowParty(s, "/app/party", party.KazooOptions{Identifier: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Join(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.IsMember())
	members, err := p.Members(ctx)
	fmt.Println(members, err)
	// Output:
	// true
	// [host-1] <nil>
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
