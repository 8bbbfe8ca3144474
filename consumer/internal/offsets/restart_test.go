package offsets

import (
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"
)

// batchOf returns messages with the offsets from first on.
func batchOf(first, n int64) (ms []sarama.ConsumerMessage) {
	for i := range n {
		ms = append(ms, sarama.ConsumerMessage{Offset: first + i})
	}
	return ms
}

// openTracker returns a Tracker whose start, at 0, was committed.
func openTracker(t *testing.T) *Tracker {
	tr := NewCommitter(Options{}).Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 0, "")
	tr.dirty = false
	return tr
}

// isAt fails the test unless the position is this one, and to be committed or not.
func isAt(t *testing.T, tr *Tracker, want int64, dirty bool) {
	t.Helper()
	if got, _, d := tr.Marked(); got != want || d != dirty {
		t.Errorf("the position is %d, to be committed: %v; want %d, %v", got, d, want, dirty)
	}
}

// After Restart the position is the offset given. Marks of messages that were not handed out again do not count, those of the
// others do, one by one as well.
func TestRestart(t *testing.T) {
	for name, restart := range map[string]func(t *testing.T, tr *Tracker){
		"back": func(t *testing.T, tr *Tracker) {
			if !tr.Restart(3, 8) {
				t.Error("messages from 3 to 7 were handed out before")
			}
			isAt(t, tr, 3, true)
			tr.Delivered(batchOf(3, 7), 10)
			if tr.Mark(8, "") || tr.Done(7) {
				t.Error("a mark of before counts")
			}
			isAt(t, tr, 3, true)
			if !tr.HandedAgain(5) {
				t.Error("5 to 7 were not handed out again")
			}
			if tr.Mark(6, "") || !tr.Mark(5, "") || tr.Done(5) {
				t.Error("the message at 4 was handed out again, that at 5 was not")
			}
			isAt(t, tr, 5, true)
			if tr.HandedAgain(8) {
				t.Error("all were handed out again")
			}
			if !tr.Done(6) || !tr.Done(5) || !tr.Mark(10, "") {
				t.Error("marks of now do not count")
			}
			isAt(t, tr, 10, true)
		},
		"forward": func(t *testing.T, tr *Tracker) {
			if tr.Restart(20, 8) {
				t.Error("nothing there was handed out before")
			}
			isAt(t, tr, 20, true)
			tr.Mark(8, "") // of before
			tr.Done(7)
			isAt(t, tr, 20, true)
			tr.Delivered(batchOf(20, 3), 23)
			tr.Mark(22, "")
			isAt(t, tr, 22, true)
		},
		"forward, and back": func(t *testing.T, tr *Tracker) {
			tr.Restart(20, 8)
			if !tr.Restart(5, 20) || tr.Mark(8, "") || tr.Mark(6, "") {
				t.Error("5 to 19 count as handed out before")
			}
			isAt(t, tr, 5, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := openTracker(t)
				tr.Delivered(batchOf(0, 10), 10)
				tr.Mark(4, "")
				restart(t, tr)
			})
		})
	}
}

// Without a mark the position that Restart sets is committed with the next mark: the user may commit in transactions. Nor is a
// gap of the log behind it committed.
func TestRestartWithoutMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := openTracker(t)
		tr.Delivered(batchOf(0, 10), 10)
		tr.Restart(3, 8)
		isAt(t, tr, 3, false)
		tr.Restart(20, 3)
		isAt(t, tr, 20, false)
		tr.Delivered(nil, 25)
		isAt(t, tr, 25, false)
		tr.Delivered(batchOf(25, 2), 27)
		tr.Mark(26, "")
		isAt(t, tr, 26, true)
	})
}

// Offsets that were taken back stay so after a Restart, and the reverse.
func TestRestartAndWithhold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := openTracker(t)
		tr.Delivered(batchOf(0, 10), 10)
		tr.Mark(8, "")
		tr.Restart(2, 9)
		tr.Delivered(batchOf(2, 8), 10)
		tr.HandedAgain(7)
		tr.Withhold(func() (int64, bool) { return 5, true })
		if tr.Mark(7, "") || tr.Mark(8, "") || !tr.Mark(5, "") {
			t.Error("a mark counts that passes what was taken back, or what was not handed out again")
		}
		isAt(t, tr, 5, true)
	})
}
