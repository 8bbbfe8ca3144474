package partitioner_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/zktest"
)

// A Start or Run after FAILURE waits for long until the earlier znodes are gone, because no server can be reached. It logs the
// znode: the contender for an item's lock, or that of the member.
func TestLongWaitIsSaid(t *testing.T) {
	for _, items := range [][]string{{"0"}, {}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var log bytes.Buffer
			m := w.member("p0", items, partitioner.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err := m.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.wantItems(items...)
			stands := path + "/party/" + w.Srv.Children(path + "/party")[0]
			if len(items) > 0 {
				stands = path + "/locks/0/" + w.Srv.Children(path + "/locks/0")[0]
			}
			w.Net.Client("p0").BlackHole(zktest.Both)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := m.Finish(ended); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if err := m.Start(ctx); !errors.Is(err, partitioner.ErrUnfinished) {
				t.Error(err)
			}
			if said := strings.Count(log.String(), "still waiting"); said != 4 || !strings.Contains(log.String(), "blocker.path="+stands) {
				t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, stands, &log)
			}
			w.Net.Client("p0").Heal()
			m.finish()
		})
	}
}
