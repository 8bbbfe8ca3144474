package session_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/session"
)

// An ephemeral znode is there for as long as the session; what relies on it runs under the incarnation's context.
func Example() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{Chroot: "/app"})
	if err != nil {
		fmt.Println(err)
		return
	}

	inc, err := s.Incarnation(ctx)
	if err != nil {
		fmt.Println(err)
		return
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
	// session: create /me: session: znode exists true
	// trusted: true
	// Close: <nil>
	// ended because of session: closed
	// trusted: false
}

// A watch is a hint to look again.
func ExampleWatch() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	ctx := context.Background()
	s, err := session.Start(ctx, zk.Addrs, session.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	inc, err := s.Incarnation(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	for i := range 3 {
		names, _, watch, err := inc.ChildrenW(ctx, "/")
		if err != nil {
			fmt.Println(err)
			return
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
