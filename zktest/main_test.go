package zktest_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// connect starts a go-zookeeper client that dials with dial, and waits for its session. The client is closed, and all of its
// goroutines have ended, before the test is over.
func connect(tb testing.TB, address string, dial dialFunc, timeout time.Duration) *zk.Conn {
	tb.Helper()
	c, events := connectNoWait(tb, address, dial, timeout)
	for ev := range events {
		if ev.State == zk.StateHasSession {
			return c
		}
	}
	tb.Fatal("no session")
	return nil
}

func connectNoWait(tb testing.TB, address string, dial dialFunc, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	tb.Helper()
	c, events, err := zk.Connect([]string{address}, timeout,
		zk.WithLogger(quiet{}), zk.WithHostProvider(&oneHost{address: address}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return dial(ctx, network, address)
		}))
	noerr.Must(tb, err)
	tb.Cleanup(func() {
		c.Close()
		for range events {
		}
	})
	return c, events
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// oneHost is a host provider without DNS: the first dial is at once, the next ones each a second later.
type oneHost struct {
	address string
	again   bool
}

func (h *oneHost) Init([]string) error { return nil }
func (h *oneHost) Len() int            { return 1 }
func (h *oneHost) Connected()          { h.again = false }

func (h *oneHost) Next() (string, bool) {
	again := h.again
	h.again = true
	return h.address, again
}

var _ zktest.TB = (*testing.T)(nil)
