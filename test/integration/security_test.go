package integration_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

// open runs a session until the test ends.
func open(t *testing.T, addr string, opts session.Options) *session.Session {
	t.Helper()
	s, err := session.New([]string{addr}, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx) // what a fatal error means, the tests ask Incarnation
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// incarnation waits for a trusted one, at most 20 s.
func incarnation(t *testing.T, s *session.Session) (*session.Incarnation, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return s.Incarnation(ctx)
}

func mustIncarnation(t *testing.T, s *session.Session) *session.Incarnation {
	t.Helper()
	inc, err := incarnation(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return inc
}

func digest(user, password string) []session.Auth {
	return []session.Auth{{Scheme: "digest", Credential: []byte(user + ":" + password)}}
}

func TestTLSWithCertificates(t *testing.T) {
	ca := servers.NewTLS(t)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TLS: ca})
	alice := mustIncarnation(t, open(t, zk.TLSAddr(), session.Options{TLS: ca.Client("alice")}))
	// The default ACL with a client certificate: everything for alice, nothing for others.
	if _, err := alice.Create(t.Context(), "/private", []byte("x"), session.Persistent); err != nil {
		t.Fatal(err)
	}
	acl, _, err := alice.GetACL(t.Context(), "/private")
	if err != nil || len(acl) != 1 || acl[0].Scheme != "x509" || !strings.Contains(acl[0].ID, "alice") {
		t.Errorf("acl %v, %v; want one entry, alice's certificate", acl, err)
	}
	bob := mustIncarnation(t, open(t, zk.TLSAddr(), session.Options{TLS: ca.Client("bob")}))
	if _, _, err := bob.Get(t.Context(), "/private"); !errors.Is(err, session.ErrNoAuth) {
		t.Errorf("bob read alice's znode: %v", err)
	}

	for name, config := range map[string]*tls.Config{
		"no certificate":                ca.Client(""),
		"certificate of a stranger":     servers.NewTLS(t).Client("mallory"),
		"servers that we can't believe": {Certificates: ca.Client("alice").Certificates, MinVersion: tls.VersionTLS12},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, zk.TLSAddr(), session.Options{TLS: config})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := s.Incarnation(ctx); err == nil {
				t.Error("was let in")
			}
		})
	}
}

func TestDigestAndAWrongPassword(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	const root = "/tenant"
	right := mustIncarnation(t, open(t, zk.Addr(), session.Options{Auth: digest("kiel", "right"), Chroot: root}))
	if _, err := right.Create(t.Context(), "/a", nil, session.Ephemeral); err != nil {
		t.Fatal(err)
	}
	_, err := incarnation(t, open(t, zk.Addr(), session.Options{Auth: digest("kiel", "wr0ng-s3cret"), Chroot: root}))
	if !errors.Is(err, session.ErrAuthFailed) {
		t.Fatalf("a wrong password: %v, want ErrAuthFailed", err)
	}
	if msg := err.Error(); !strings.Contains(msg, "kiel") || strings.Contains(msg, "wr0ng-s3cret") {
		t.Errorf("the error must name the user and keep the password: %s", msg)
	}
}

func TestACLDenies(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	owner := mustIncarnation(t, open(t, zk.Addr(), session.Options{Auth: digest("owner", "x")}))
	if err := owner.EnsurePath(t.Context(), "/mine"); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Create(t.Context(), "/mine/a", nil, session.Persistent); err != nil {
		t.Fatal(err)
	}
	stranger := mustIncarnation(t, open(t, zk.Addr(), session.Options{}))
	ctx := t.Context()
	calls := map[string]func() error{
		"get":      func() error { _, _, err := stranger.Get(ctx, "/mine/a"); return err },
		"children": func() error { _, _, err := stranger.Children(ctx, "/mine"); return err },
		"set":      func() error { _, err := stranger.Set(ctx, "/mine/a", nil, -1); return err },
		"create":   func() error { _, err := stranger.Create(ctx, "/mine/b", nil, session.Ephemeral); return err },
		"delete":   func() error { return stranger.Delete(ctx, "/mine/a", -1) },
		"multi":    func() error { _, err := stranger.Multi(ctx, session.DeleteOp("/mine/a", -1)); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, session.ErrNoAuth) {
			t.Errorf("%s: %v, want ErrNoAuth", name, err)
		} else if !strings.Contains(err.Error(), "/mine") {
			t.Errorf("%s: the error names no path: %v", name, err)
		}
	}
}

func TestChroot(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	inside := mustIncarnation(t, open(t, zk.Addr(), session.Options{Chroot: "/apps/one"}))
	got, err := inside.Create(t.Context(), "/node-", []byte("x"), session.EphemeralSequential)
	if err != nil || got != "/node-0000000000" {
		t.Fatalf("created %q, %v; want the path as seen inside", got, err)
	}
	outside := mustIncarnation(t, open(t, zk.Addr(), session.Options{}))
	names, _, err := outside.Children(t.Context(), "/apps/one")
	if err != nil || len(names) != 1 || names[0] != "node-0000000000" {
		t.Errorf("from outside: %v, %v", names, err)
	}
}
