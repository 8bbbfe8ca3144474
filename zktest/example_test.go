package zktest_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

// A program of its own starts a server without a test, and a client connects to it.
func ExampleStartTCP() {
	srv, address, err := zktest.StartTCP(context.Background(), "127.0.0.1:0", zktest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()

	client, _, err := zk.Connect([]string{address}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Create("/job", []byte("mine"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}

	data, _, _ := srv.Get("/job") // what the server holds, without a client
	fmt.Printf("/job is %q\n", data)
	// Output:
	// /job is "mine"
}

// A client on a virtual network loses its connection in the middle of a request: it can't know what became of it. In a test,
// StartVirtual does the first lines, and testing/synctest makes time virtual.
func Example() {
	srv := zktest.NewServer(zktest.Options{})
	defer srv.Close()
	nw := zktest.NewNetwork()
	l, err := nw.Listen("zk:2181")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()

	client, events, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)),
		zk.WithDialer(func(network, _ string, _ time.Duration) (net.Conn, error) {
			return nw.Client("a").Dial(context.Background(), network, "zk:2181")
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		client.Close()
		for range events { // it closes when the client has ended
		}
	}()

	srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpCreate && r.Client == "a" })
	_, err = client.Create("/job", []byte("mine"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	fmt.Println("create:", err)

	data, stat, ok := srv.Get("/job")
	fmt.Printf("on the server: %t, %q, owned by the client: %t\n", ok, data, stat.EphemeralOwner == srv.Sessions()[0].ID)

	srv.KillSession(stat.EphemeralOwner)
	_, _, ok = srv.Get("/job")
	fmt.Println("after its session:", ok)
	// Output:
	// create: zk: connection closed
	// on the server: true, "mine", owned by the client: true
	// after its session: false
}
