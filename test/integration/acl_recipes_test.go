package integration_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	waiting "github.com/kielgo/kiel/test/wait"
)

// The ACL of a set partitioner's party is wrong when its only member joins first, which ends Run at once, and when the member has
// lost its session, which Run outlasts.
func TestPartyACLWrongForAWhile(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	operator, events, err := zk.Connect([]string{server.Addr()}, 20*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		operator.Close()
		for range events {
			continue
		}
	})
	if err := operator.AddAuth("digest", []byte("root:x")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/set", "/set/party"} {
		if _, err := operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	allow := func(acl []zk.ACL) {
		if _, err := operator.SetACL("/set/party", acl, -1); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, server.Addr(), session.Options{Timeout: 6 * time.Second, MinSessionTimeout: time.Second})
	p, err := partitioner.New(s, "/set", []string{"0"}, partitioner.Options{
		Identifier: "m", TimeBoundary: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	work := func(ctx context.Context, _ []string) error { <-ctx.Done(); return nil }

	allow(zk.DigestACL(zk.PermAll, "root", "x"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Run(ctx, work); !errors.Is(err, session.ErrNoAuth) || errors.Is(err, partitioner.ErrUnfinished) || ctx.Err() != nil {
		t.Fatalf("the first join: %v", err)
	}
	allow(zk.WorldACL(zk.PermAll))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, work) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	}()
	state := func() string { return p.State().String() }
	waiting.Until(t, time.Minute, p.Acquired, state)
	allow(zk.DigestACL(zk.PermAll, "root", "x"))
	id := p.Snapshot().ID
	s.GiveUp(errors.New("the test ends this session"))
	waiting.Until(t, time.Minute, func() bool { return p.Allocating() && p.Snapshot().ID > id }, state)
	time.Sleep(2 * time.Second) // attempts are refused
	if !p.Allocating() {
		t.Errorf("%s while the party may not be read", p.State())
	}
	allow(zk.WorldACL(zk.PermAll))
	began := time.Now()
	waiting.Until(t, time.Minute, p.Acquired, state)
	t.Logf("acquired again after %v", time.Since(began))
}
