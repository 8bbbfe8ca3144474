package zktest_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/testonly/noerr"
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
			noerr.Last(b)(c.Create("/x", nil, 0, zk.WorldACL(zk.PermAll)))
			b.ReportAllocs()
			for b.Loop() {
				noerr.Last(b)(c.Set("/x", nil, -1))
			}
		})
	}
}

// BenchmarkJoin measures members that join a directory one by one, each watching it and reading it after each change.
func BenchmarkJoin(b *testing.B) {
	const members = 100
	for b.Loop() {
		srv, nw := zktest.StartVirtual(b, zktest.Options{})
		noerr.Must(b, srv.Create("/m", nil))
		for range members {
			c := connect(b, zktest.VirtualAddress, nw.Dial, 10*time.Second)
			noerr.Last(b)(c.Create("/m/m-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))
			if names, _, _, err := c.ChildrenW("/m"); err != nil || len(names) == 0 {
				b.Fatal(names, err)
			}
		}
	}
}
