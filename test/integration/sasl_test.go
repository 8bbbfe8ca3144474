package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

// TestServersDemandSASL: servers that demand SASL, which a session does not speak, are an error that says so, at once.
func TestServersDemandSASL(t *testing.T) {
	t.Parallel()
	const provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
	for name, config := range map[string]map[string]string{
		"session require": {"sessionRequireClientSASLAuth": "true", "authProvider.1": provider},
		"enforce":         {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl", "authProvider.1": provider},
	} {
		zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: config})
		for _, auth := range [][]session.Auth{nil, {{Scheme: "digest", Credential: []byte("user:secret")}}} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			began := time.Now()
			s, err := session.Start(ctx, zk.Addrs(), session.Options{Auth: auth, Chroot: "/app"})
			if err == nil {
				_ = s.Close(ctx)
			}
			if !errors.Is(err, session.ErrAuthFailed) || !strings.Contains(err.Error(), "SASL") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %d credentials: %v, want one that says that SASL is not supported", name, len(auth), err)
			}
			t.Logf("%s, %d credentials: after %v: %v", name, len(auth), time.Since(began).Round(time.Millisecond), err)
			cancel()
		}
	}
}
