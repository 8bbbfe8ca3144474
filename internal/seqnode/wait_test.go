package seqnode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

// A long wait logs the contender in front: after half a minute, and then whenever the time has doubled.
func TestLongWaitIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		first := w.node(s, "the holder\xff")
		w.node(s, "the second")
		var log bytes.Buffer
		dir := seqnode.NewDir(s, "/d", seqnode.Options{
			Word: "-n-", Rivals: []string{"-n-"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		n, err := dir.Create(t.Context())
		noerr.Must(t, err)
		for _, step := range []struct {
			waits time.Duration
			said  int
		}{{25 * time.Second, 0}, {10 * time.Minute, 5}} {
			log.Reset()
			ctx, cancel := context.WithTimeout(t.Context(), step.waits)
			if _, err := n.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			if said := strings.Count(log.String(), "still waiting"); said != step.said {
				t.Errorf("in %v it was said %d times, want %d:\n%s", step.waits, said, step.said, &log)
			}
		}
		inc, err := s.Incarnation(t.Context())
		noerr.Must(t, err)
		for _, want := range []string{
			"path=" + n.Path(), "ahead=2", "blocker.path=" + first.Path(), `blocker.data="the holder?"`,
			fmt.Sprintf("blocker.session_id=%#x", inc.SessionID()), "blocker.since=", "waited=4m",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s is missing:\n%s", want, &log)
			}
		}
	})
}

// A long wait for the removal of this handle's contender is logged, too.
func TestLongWaitForOnesOwnIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		var log bytes.Buffer
		dir := seqnode.NewDir(s, "/d", seqnode.Options{
			Word: "-n-", Rivals: []string{"-n-"}, Data: []byte("ours"), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		n, err := dir.Create(t.Context())
		noerr.Must(t, err)
		id := s.Current().SessionID()
		w.Net.Client("a").BlackHole(zktest.Both)
		n.Abandon(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := dir.Create(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if said := strings.Count(log.String(), "still waiting"); said != 4 {
			t.Errorf("said %d times, want 4:\n%s", said, &log)
		}
		for _, want := range []string{
			"path=/d", "waited=30s", "waited=4m", "blocker.path=" + n.Path(), "blocker.data=ours", fmt.Sprintf("blocker.session_id=%#x", id),
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s is missing:\n%s", want, &log)
			}
		}
		if strings.Contains(log.String(), "blocker.since") {
			t.Errorf("said since when, which nobody knows:\n%s", &log)
		}
		w.Net.Client("a").Heal()
	})
}
