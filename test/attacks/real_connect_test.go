package attacks_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// Execution §5 on real servers, of which the second grants at most 2 s.
func TestLostConnectReplyOnRealServers(t *testing.T) {
	t.Parallel()
	const (
		timeout = 10 * time.Second
		least   = 2 * time.Second
	)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		Servers: 2, TickTime: realTick, MaxSessionTimeout: timeout, MinSessionTimeout: least,
		ConfigOf: func(index int) map[string]string {
			if index == 0 {
				return nil
			}
			return map[string]string{"maxSessionTimeout": fmt.Sprint(least.Milliseconds())}
		},
	})
	s := newSite(t, groupOf(t), zk.Addrs()[:1])
	opts := options{session: session.Options{Timeout: timeout, MinSessionTimeout: least}}
	mine := s.on("a", opts)
	generous, strict := s.links["a"], proxy.To(t, zk.Addrs()[1:])
	mine.servers = append(mine.servers, strict.Addrs()...)
	connected := make(chan struct{}, 1)
	mine.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil && address == strict.Addrs()[0] {
			select {
			case connected <- struct{}{}:
			default:
			}
		}
		return conn, err
	}
	strict.Refuse()
	a := s.join("a", mine)
	a.owns(expiry, "0")
	b := s.member("b", opts)
	s.within(expiry, "b has joined", func() bool { return b.journal.count(eventlog.Joined) == 1 })
	if got := a.session.Timeout(); got != timeout {
		t.Fatalf("granted %v", got)
	}
	proofs := s.proofs(generous)
	for range 3 {
		<-proofs
	}
	wait.Pass(t, 20*time.Millisecond) // for the answer
	generous.Refuse()
	wait.Pass(t, 2*realTick) // for the first server to report what it has heard: the session lives for the longer time then
	strict.Heal()
	strict.BlackHole(proxy.ToClient) // the server's answer does not come
	<-connected
	wait.Pass(t, 200*time.Millisecond) // for the request; less than a handshake may take, so there is no other
	strict.Refuse()
	b.owns(least+expiry, "0")
	s.within(timeout+expiry, "a has stopped", func() bool { return a.journal.count(eventlog.Untrusted) > 0 })
	withstood(t, s.close())
}
