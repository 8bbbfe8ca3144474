package zktest_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

// BenchmarkRequest measures a request of a real client and its reply.
func BenchmarkRequest(b *testing.B) {
	for name, start := range map[string]func(b *testing.B) (string, dialFunc){
		"tcp": func(b *testing.B) (string, dialFunc) {
			b.Helper()
			_, address := zktest.Start(b, zktest.Options{})
			return address, new(net.Dialer).DialContext
		},
		"virtual": func(b *testing.B) (string, dialFunc) {
			b.Helper()
			_, nw := zktest.StartVirtual(b, zktest.Options{})
			return zktest.VirtualAddress, nw.Dial
		},
	} {
		b.Run(name, func(b *testing.B) {
			address, dial := start(b)
			c := connect(b, address, dial, 10*time.Second)
			if _, err := c.Create("/x", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Set("/x", nil, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJoin measures members that join a directory one by one, each watching it and reading it after each change.
func BenchmarkJoin(b *testing.B) {
	const members = 100
	for b.Loop() {
		srv, nw := zktest.StartVirtual(b, zktest.Options{})
		if err := srv.Create("/m", nil); err != nil {
			b.Fatal(err)
		}
		for range members {
			c := connect(b, zktest.VirtualAddress, nw.Dial, 10*time.Second)
			if _, err := c.Create("/m/m-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
				b.Fatal(err)
			}
			if names, _, _, err := c.ChildrenW("/m"); err != nil || len(names) == 0 {
				b.Fatal(names, err)
			}
		}
	}
}
