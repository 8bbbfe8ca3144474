package partitioner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/zktest"
)

// A Start or Run after FAILURE waits for long until the earlier znodes are gone, because no server can be reached. It logs the
// znode: the contender for an item's lock, or that of the member.
func TestLongWaitIsSaid(t *testing.T) {
	for _, items := range [][]string{{"0"}, {}} {
		inWorld(t, func(w *world) {
			log, said := w.LongWaits()
			m := w.member("p0", items, partitioner.Options{Logger: log})
			w.Must(m.Start(w.Context()))
			m.wantItems(items...)
			stands := path + "/party/" + w.Srv.Children(path + "/party")[0]
			if len(items) > 0 {
				stands = path + "/locks/0/" + w.Srv.Children(path + "/locks/0")[0]
			}
			w.Net.Client("p0").BlackHole(zktest.Both)
			ended, cancel := context.WithCancel(w.Context())
			cancel()
			if err := m.Finish(ended); !errors.Is(err, context.Canceled) {
				w.Error(err)
			}
			if err := m.Start(w.Within(5 * time.Minute)); !errors.Is(err, partitioner.ErrUnfinished) {
				w.Error(err)
			}
			said(4, stands, "")
			w.Net.Client("p0").Heal()
			m.finish()
		})
	}
}
