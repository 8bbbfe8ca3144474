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
	s, err := session.New(zk.Addrs, session.Options{Chroot: "/app"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

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

	stop()
	fmt.Println("Run:", <-done)
	<-inc.Context().Done()
	fmt.Println("ended because of", context.Cause(inc.Context()))
	fmt.Println("trusted:", inc.Trusted())
	// Output:
	// /me <nil>
	// session: create /me: session: znode exists true
	// trusted: true
	// Run: <nil>
	// ended because of session: closed
	// trusted: false
}

// A watch is a hint to look again.
func ExampleWatch() {
	zk := exampletest.StartZooKeeper() // in memory
	defer zk.Stop()
	s, err := session.New(zk.Addrs, session.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
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
	stop()
	<-done
	// Output:
	// [zookeeper]
	// [n0 zookeeper]
	// [n0 n1 zookeeper]
}
