package offsets

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// The age of the oldest mark counts from the first mark that no commit has stored, for each partition and for all together.
func TestBacklog(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		var refuse atomic.Bool
		store.Refuse = func(c OffsetCommit) error {
			if refuse.Load() && c.Partition.ID == 1 {
				return errors.New("refused in a test")
			}
			return nil
		}
		var trackers []*Tracker
		for id := range int32(2) {
			tr := openAt(t, cm, tp("t", id), 10)
			tr.Delivered(manyMessages(10, 4, 1), 14)
			trackers = append(trackers, tr)
		}
		want := func(when string, oldest, stored time.Duration) {
			t.Helper()
			b := cm.Backlog()
			if b.Oldest.IsZero() != (oldest < 0) || !b.Oldest.IsZero() && time.Since(b.Oldest) != oldest {
				t.Errorf("%s: the oldest mark is of %v, want one %v ago", when, b.Oldest, oldest)
			}
			assert.Equal(t, time.Since(b.StoredAt), stored, "%s: since the last was stored", when)
		}
		time.Sleep(500 * time.Millisecond) // between two ticks of the committer
		want("nothing is marked", -1, 500*time.Millisecond)
		refuse.Store(true)
		trackers[0].Mark(11, "")
		trackers[1].Mark(11, "")
		time.Sleep(400 * time.Millisecond)
		trackers[1].Mark(12, "")
		want("before the commit", 400*time.Millisecond, 900*time.Millisecond)
		time.Sleep(10*time.Second - 400*time.Millisecond)
		want("one partition is refused", 10*time.Second, 9500*time.Millisecond)
		if p := trackers[1].Progress(); p.Marked != 12 || p.Committed != 10 || time.Since(p.Oldest) != 10*time.Second {
			t.Errorf("refused: %+v", p)
		}
		refuse.Store(false)
		time.Sleep(time.Second)
		want("all is stored", -1, 500*time.Millisecond)
		if p := trackers[1].Progress(); p.Marked != 12 || p.Committed != 12 || !p.Oldest.IsZero() {
			t.Errorf("stored: %+v", p)
		}
	})
}

// A mark that comes while a commit is under way waits from then on, not from when the mark before it was made.
func TestBacklogBehindACommitUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := trackerAt(t, 10, 0)
		tr.Delivered(messages(10, 11, 12), 13)
		tr.Mark(11, "")
		time.Sleep(time.Minute)
		p := tr.prepare(NewCommitter(Options{}), marked)
		time.Sleep(time.Second)
		tr.Mark(12, "")
		tr.stored(p, time.Now())
		if got := tr.Progress(); got.Committed != 11 || got.Marked != 12 || time.Since(got.Oldest) != time.Second {
			t.Errorf("%+v, %v old; want a mark that waits since the commit began, 1 s ago", got, time.Since(got.Oldest))
		}
	})
}
