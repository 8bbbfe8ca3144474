package exampletest_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
	"github.com/kielgo/kiel/internal/exampletest"
	"github.com/kielgo/kiel/session"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

// A session that was told to end is closed before its server ends, not left to expire.
func TestStop(t *testing.T) {
	for range 20 {
		zk := exampletest.StartZooKeeper()
		s, err := session.New(zk.Addrs, session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		if _, err := s.Incarnation(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		zk.Stop()
		if err := <-ran; err != nil || len(zk.Sessions()) != 0 {
			t.Errorf("%v, sessions %+v", err, zk.Sessions())
		}
	}
}
