package party_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Two members of a group see each other.
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
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 2)

	member := func(name string) *party.Party {
		p, err := party.New(s, "/kiel/groups/orders/members", party.Options{Name: name, Data: []byte("hello from " + name)})
		if err != nil {
			log.Fatal(err)
		}
		go func() { ended <- p.Run(ctx) }()
		return p
	}
	one := member("host1:4711")
	member("host2:815")

	for view := range one.Updates(ctx) {
		if len(view.Members) == 2 {
			for _, m := range view.Members {
				fmt.Printf("%s says %q\n", m.Name, m.Data)
			}
			break
		}
	}

	stop()
	for range 2 {
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("left behind:", zk.Children("/kiel/groups/orders/members"))
	// Output:
	// host1:4711 says "hello from host1:4711"
	// host2:815 says "hello from host2:815"
	// left behind: []
}
