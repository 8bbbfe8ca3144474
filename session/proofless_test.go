package session_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A server that answers all but proofs of life, also one that the session has reached only a moment ago, is left for another one
// before trust ends.
func TestServerWithoutProofsIsLeftInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const other = "zk2:2181"
		l := must[net.Listener](t)(w.net.Listen(other))
		go w.srv.Serve(l)
		link, at := w.net.Client("a"), atomic.Value{}
		s := must[*session.Session](t)(session.New([]string{zktest.VirtualAddress, other}, session.Options{
			Timeout: timeout,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				at.Store(address)
				return link.Dial(ctx, network, address)
			},
		}))
		m := run(t, s, link)
		inc := m.incarnation()
		time.Sleep(timeout/6 + 100*time.Millisecond)
		first := at.Load().(string)
		w.srv.Isolate(first)
		time.Sleep(10 * timeout)
		if !inc.Trusted() || m.Stats().TrustLosses != 0 || at.Load() == first {
			t.Errorf("trusted %t, trust lost %d times, was at %s and is at %s", inc.Trusted(), m.Stats().TrustLosses, first, at.Load())
		}
	})
}
