package ownership_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// operator returns a client without a Session, and what ends it, which is to be called before the server ends.
func (w *world) operator(t *testing.T) (conn *zk.Conn, end func()) {
	t.Helper()
	conn, events, err := zk.Connect([]string{zktest.VirtualAddress}, 10*time.Second, zk.WithLogInfo(false),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return w.nw.Client("operator").Dial(ctx, network, address)
		}), zk.WithHostProvider(&zkHost{}))
	noerr.Must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range events {
			continue
		}
	}()
	return conn, func() { conn.Close(); <-ended }
}

// zkHost resolves nothing.
type zkHost struct{}

func (*zkHost) Init([]string) error  { return nil }
func (*zkHost) Len() int             { return 1 }
func (*zkHost) Next() (string, bool) { return zktest.VirtualAddress, false }
func (*zkHost) Connected()           {}

// The proofs of a member are refused, as after a rotation of credentials that left it out: its claims go after two session
// timeouts and the other member owns everything. When the ACL is mended both own again. When both members are left out
// nobody owns anything, and that too ends by itself.
func TestProofsRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const timeout = 10 * time.Second
		op, end := w.operator(t)
		defer end()
		seed := ids(12)
		everything := zk.WorldACL(zk.PermAll)
		rotated := append(zk.WorldACL(zk.PermAdmin), zk.DigestACL(zk.PermAll, "new", "password")...)
		acl := func(list []zk.ACL, paths ...string) {
			t.Helper()
			for _, path := range paths {
				noerr.Last(t)(op.SetACL(path, list, -1))
			}
		}
		checks := []string{"/check-a", "/check-b"}
		for _, path := range checks {
			noerr.Last(t)(op.Create(path, nil, 0, everything))
		}
		a := w.joinFullWith("a", session.Options{CheckPath: checks[0]}, seed, ownership.Options{})
		b := w.joinFullWith("b", session.Options{CheckPath: checks[1]}, seed, ownership.Options{})
		own := func(limit time.Duration, what string, ofA, ofB int) time.Duration {
			t.Helper()
			return w.within(limit, what, func() bool { return len(a.owner.Owned()) == ofA && len(b.owner.Owned()) == ofB })
		}
		own(5*time.Second, "both own", 6, 6)
		time.Sleep(timeout)

		acl(rotated, checks[0])
		took := own(2*timeout+timeout/3+2*time.Second, "b owns everything", 0, 12)
		t.Logf("the refused member's partitions are owned after %v", took)
		if took < 2*timeout {
			t.Errorf("the refused member gave up after %v", took)
		}
		time.Sleep(10 * timeout)
		own(0, "b still owns everything", 0, 12)
		acl(everything, checks[0])
		own(timeout/2+2*time.Second, "both own again", 6, 6)

		acl(rotated, checks...)
		own(timeout, "nobody owns", 0, 0)
		time.Sleep(10 * timeout)
		if n := len(w.srv.Children(owners)); n != 0 {
			t.Errorf("%d claims are left of members that are refused", n)
		}
		acl(everything, checks...)
		own(timeout/2+2*time.Second, "both own at last", 6, 6)
	})
}
