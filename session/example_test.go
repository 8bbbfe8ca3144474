package session_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// An ephemeral znode is there for as long as the session; what relies on it runs under the incarnation's context.
func Example() {
	ctx := context.Background()
	zk, address, err := zktest.StartTCP(ctx, "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	s, err := session.Start(ctx, []string{address}, session.Options{Chroot: "/app"})
	if err != nil {
		log.Fatal(err)
	}

	inc, err := s.Incarnation(ctx)
	if err != nil {
		log.Fatal(err)
	}
	path, err := inc.Create(ctx, "/me", []byte("here"), session.Ephemeral)
	fmt.Println(path, err)
	_, err = inc.Create(ctx, "/me", nil, session.Ephemeral)
	fmt.Println(err, errors.Is(err, session.ErrNodeExists))
	fmt.Println("trusted:", inc.Trusted())

	fmt.Println("Close:", s.Close(ctx))
	<-inc.Context().Done()
	fmt.Println("ended because of", context.Cause(inc.Context()))
	fmt.Println("trusted:", inc.Trusted())
	// Output:
	// /me <nil>
	// session: create /me: znode exists true
	// trusted: true
	// Close: <nil>
	// ended because of ZooKeeper session is closed
	// trusted: false
}

// A watch is a hint to look again.
func ExampleWatch() {
	ctx := context.Background()
	zk, address, err := zktest.StartTCP(ctx, "127.0.0.1:0", zktest.Options{}) // instead of real servers
	if err != nil {
		log.Fatal(err)
	}
	defer zk.Close()
	s, err := session.Start(ctx, []string{address}, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	inc, err := s.Incarnation(ctx)
	if err != nil {
		log.Fatal(err)
	}

	for i := range 3 {
		names, _, watch, err := inc.ChildrenW(ctx, "/")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(names)
		_ = zk.Create(fmt.Sprint("/n", i), nil) // somebody else
		<-watch.C()
	}
	// Output:
	// [zookeeper]
	// [n0 zookeeper]
	// [n0 n1 zookeeper]
}
