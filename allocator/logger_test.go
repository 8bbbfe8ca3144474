package allocator_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A member that can't start says so by slog.Default, unless its log is to be dropped.
func TestLogWithoutLogger(t *testing.T) {
	for _, s := range []struct {
		name   string
		logger *slog.Logger
		want   bool
	}{
		{"no Logger", nil, true},
		{"discarded", slog.New(slog.DiscardHandler), false},
	} {
		t.Run(s.name, func(t *testing.T) {
			said := logtest.Capture(t)
			synctest.Test(t, func(t *testing.T) {
				srv, network := zktest.StartVirtual(t, zktest.Options{})
				network.Refuse()
				ses, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: network.Dial, Logger: s.logger})
				noerr.Must(t, err)
				a, err := allocator.New(ses, group, "a", allocator.Options{Seed: map[string][]int32{"t": {0}}, Logger: s.logger})
				noerr.Must(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				ended := make(chan error, 2)
				run, stop := context.WithCancel(t.Context())
				go func() { ended <- ses.Run(run) }()
				go func() { ended <- a.Run(run) }()
				if err := a.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Ready: %v", err)
				}
				if got := said.Count("level=WARN", "connection failed", zktest.VirtualAddress) > 0; got != s.want {
					t.Errorf("a second without ZooKeeper: said %v\n%s", got, said)
				}

				// Lines of the allocator itself.
				network.Heal()
				noerr.Must(t, srv.Create(partitions, []byte("no set")))
				sleep(5 * time.Second)
				if got := said.Count("level=ERROR", "component=sharedset", "kind=set") > 0; got != s.want {
					t.Errorf("a set that can't be read: said %v\n%s", got, said)
				}
				stop()
				<-ended
				<-ended
			})
			if !s.want && said.String() != "" {
				t.Errorf("said though it was to be dropped:\n%s", said)
			}
		})
	}
}
