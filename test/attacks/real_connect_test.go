package attacks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// attacks.md §5 on real servers, of which the second grants at most 2 s.
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
	run := func(t *testing.T, off ...sabotage.Rule) *outcome {
		s := newSite(t, groupOf(t), zk.Addrs()[:1])
		generous, strict := s.links, proxy.To(t, zk.Addrs()[1:])
		opts := options{off: off, session: session.Options{Timeout: timeout, MinSessionTimeout: least}}
		mine := s.on("a", opts)
		mine.servers = append(mine.servers, strict.Addrs()...)
		strict.Refuse()
		a := s.join("a", mine)
		a.owns(expiry, "0")
		b := s.member("b", opts)
		s.within(expiry, "b has joined", func() bool { return b.journal.count(eventlog.Joined) == 1 })
		wait.Pass(t, timeout/3) // for some proofs of life
		if got := a.session.Timeout(); got != timeout {
			t.Fatalf("granted %v", got)
		}
		strict.Heal()
		strict.BlackHole(proxy.ToClient) // the server's answer does not come
		generous["a"].Refuse()
		wait.Pass(t, 300*time.Millisecond) // less than a handshake may take: no second try
		strict.Refuse()
		b.owns(least+expiry, "0")
		s.within(timeout+expiry, "a has stopped", func() bool { return a.journal.count(eventlog.Untrusted) > 0 })
		return s.close()
	}
	for mode, off := range map[string][]sabotage.Rule{"on": nil, "off": {sabotage.ConnectMargin}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if o := run(t, off...); mode == "on" {
				withstood(t, o)
			} else {
				broken(t, overlap, o)
			}
		})
	}
}
