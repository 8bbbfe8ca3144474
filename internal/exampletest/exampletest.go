package exampletest

import (
	"net"
	"sync"

	"github.com/kielgo/kiel/zktest"
)

// ZooKeeper is a server in memory, on a free TCP port.
type ZooKeeper struct {
	*zktest.Server
	Addrs []string // where to connect to

	open   sync.WaitGroup // connections
	served sync.WaitGroup
}

// StartZooKeeper starts a server.
func StartZooKeeper() *ZooKeeper {
	z := &ZooKeeper{Server: zktest.NewServer(zktest.Options{})}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		panic(err)
	}
	z.Addrs = []string{l.Addr().String()}
	z.served.Go(func() { _ = z.Serve(&listener{Listener: l, open: &z.open}) })
	return z
}

// Stop ends the server when its clients have gone: a session that is closed while its server goes away takes a while.
func (z *ZooKeeper) Stop() {
	z.open.Wait()
	_ = z.Close() // it always succeeds
	z.served.Wait()
}

// listener counts the open connections.
type listener struct {
	net.Listener
	open *sync.WaitGroup
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &conn{Conn: c, closed: sync.OnceFunc(l.open.Done)}, nil
}

type conn struct {
	net.Conn
	closed func()
}

func (c *conn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
