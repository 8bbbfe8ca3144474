package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	waiting "github.com/kielgo/kiel/test/wait"
)

// TestServersTakeLess: with servers that take less than Options.MaxPacket says, what is too large for them is an error that says
// so, after three connections, and all that fits goes on.
func TestServersTakeLess(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{JuteMaxBuffer: limit})
	start := func(t *testing.T) (*session.Session, context.Context) {
		s, err := session.Start(t.Context(), zk.Addrs(), session.Options{Timeout: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		return s, ctx
	}
	judge := func(t *testing.T, s *session.Session, err error, most uint64) {
		t.Helper()
		if !errors.Is(err, session.ErrCostsConnection) || !strings.Contains(err.Error(), "jute.maxbuffer") {
			t.Errorf("%v, want one that says that servers end the connection", err)
		}
		reconnects := s.Stats().Reconnects
		if reconnects > most {
			t.Errorf("%d reconnects", reconnects)
		}
		t.Attr("reconnects", fmt.Sprint(reconnects))
	}
	t.Run("set", func(t *testing.T) {
		t.Parallel()
		s, ctx := start(t)
		set, err := sharedset.New(s, "/set", sharedset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var items []string
		for i := range 20_000 {
			items = append(items, fmt.Sprint("some-topic:", i))
		}
		_, err = set.Add(ctx, items...)
		judge(t, s, err, 3)
		if !errors.Is(err, sharedset.ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
		if added, err := set.Add(ctx, items[:5000]...); added != 5000 || err != nil {
			t.Errorf("added %d, %v", added, err)
		}
	})
	t.Run("identifier", func(t *testing.T) {
		t.Parallel()
		s, ctx := start(t)
		l, err := lock.New(s, "/lock", lock.Options{Identifier: strings.Repeat("i", 300_000)})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			_, err = l.Acquire(ctx)
			judge(t, s, err, 3)
		}
	})
	t.Run("seed", func(t *testing.T) {
		t.Parallel()
		s, ctx := start(t)
		ids := make([]int32, 15_000)
		for i := range ids {
			ids[i] = int32(i)
		}
		reported := make(chan error, 1)
		a, err := allocator.New(s, "g", "m", allocator.Options{
			Seed: map[string][]int32{"a-topic-of-some-length": ids},
			OnError: func(_ context.Context, err error) {
				if errors.Is(err, session.ErrCostsConnection) {
					select {
					case reported <- err:
					default:
					}
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		run, stop := context.WithCancel(ctx)
		go func() { ran <- a.Run(run) }()
		select {
		case err = <-reported:
		case <-ctx.Done():
			t.Fatal("the seed's error was not reported")
		}
		waiting.Pass(t, 5*time.Second) // it is tried again after pauses
		judge(t, s, err, 3)
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
