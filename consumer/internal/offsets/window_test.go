package offsets

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// trackerAt returns an open Tracker whose position is offset.
func trackerAt(t *testing.T, offset int64, window int) *Tracker {
	t.Helper()
	cm := NewCommitter(Options{Timeout: time.Second, MaxUnmarked: window})
	return cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, offset, "")
}

func messages(offsets ...int64) []sarama.ConsumerMessage {
	var ms []sarama.ConsumerMessage
	for _, o := range offsets {
		ms = append(ms, sarama.ConsumerMessage{Offset: o})
	}
	return ms
}

// manyMessages returns n messages, step apart.
func manyMessages(from int64, n int, step int64) []sarama.ConsumerMessage {
	ms := make([]sarama.ConsumerMessage, n)
	for i := range ms {
		ms[i].Offset = from + int64(i)*step
	}
	return ms
}

func wantPosition(t *testing.T, when string, tr *Tracker, want int64) {
	t.Helper()
	if got, _, _ := tr.Marked(); got != want {
		t.Errorf("%s: position %d, want %d", when, got, want)
	}
}

// When all that was delivered is marked, the position passes gaps and control records.
func TestPositionPassesGaps(t *testing.T) {
	tr := trackerAt(t, 10, 0)
	tr.Delivered(messages(10, 11, 15), 19)
	tr.Mark(12, "a")
	wantPosition(t, "some are marked", tr, 12)
	tr.Delivered(nil, 21)
	wantPosition(t, "some are marked, and control records follow", tr, 12)
	tr.Mark(16, "b")
	wantPosition(t, "all are marked", tr, 21)
	tr.Delivered(nil, 30)
	if got, text, dirty := tr.Marked(); got != 30 || text != "b" || !dirty {
		t.Errorf("control records alone: position %d %q, to be committed: %v", got, text, dirty)
	}
	tr.Reset(12, "")
	tr.Delivered(nil, 40)
	wantPosition(t, "after a reset", tr, 12)
}

func TestDoneMarksOneMessage(t *testing.T) {
	tr := trackerAt(t, 10, 0)
	tr.Delivered(messages(10, 11, 15, 16), 20)
	for _, step := range []struct{ done, want int64 }{{15, 10}, {12, 10}, {99, 10}, {10, 11}, {10, 11}, {11, 16}, {16, 20}} {
		tr.Done(step.done)
		wantPosition(t, "done", tr, step.want)
	}
	tr.Delivered(messages(25, 30), 31)
	tr.Done(30)
	wantPosition(t, "a gap before the oldest", tr, 25)
	tr.Mark(26, "")
	wantPosition(t, "mark", tr, 26)
	tr.Delivered(messages(31), 32)
	tr.Done(31)
	wantPosition(t, "all", tr, 32)
}

// Hand-out is bounded only once a message was marked alone; then the position bounds it.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := trackerAt(t, 0, 3)
		tr.Delivered(messages(0, 2, 4, 6, 8, 10), 11)
		assert.Equal(t, tr.Room(8), nil, "what holds back the fourth message before one was marked alone")
		tr.Mark(1, "")
		tr.Done(4)
		assert.Equal(t, tr.Room(6), nil, "what holds back the third message from the oldest one on")
		time.Sleep(time.Second)
		full := tr.Room(8)
		since := time.Now()
		if full == nil {
			t.Fatal("room for the fourth message")
		}
		time.Sleep(time.Second)
		assert.Equal(t, tr.Room(8), full, "the channel when it is asked again")
		if oldest, at, held := tr.HeldBack(); !held || oldest != 2 || !at.Equal(since) {
			t.Errorf("held back: %v at %d since %v, want 2 since %v", held, oldest, at, since)
		}
		tr.Done(6)
		select {
		case <-full:
			t.Error("room though the oldest message is not marked")
		default:
		}
		tr.Done(2)
		<-full
		if _, _, held := tr.HeldBack(); held || tr.Room(8) != nil {
			t.Error("held back with room")
		}
	})
}

// A handler that marks nothing costs bounded memory, however many gaps the log has.
func TestUnmarkedDeliveriesAreBounded(t *testing.T) {
	tr := trackerAt(t, 0, 0)
	last := int64(0)
	for range 5 {
		ms := manyMessages(last, maxRuns/2, 2)
		last = ms[len(ms)-1].Offset + 2
		tr.Delivered(ms, last)
		if n := len(tr.window.runs); n > maxRuns {
			t.Fatalf("%d runs are kept", n)
		}
	}
	tr.Done(last - 2)
	wantPosition(t, "what was delivered is not known any more", tr, 0)
	if oldest, _, held := tr.HeldBack(); tr.Room(last-2) == nil || held {
		t.Errorf("room, or held at %d before it was asked", oldest)
	}
	tr.Mark(last, "")
	wantPosition(t, "marked with all before", tr, last)
	tr.Delivered(messages(last, last+1), last+2)
	if tr.Room(last) != nil {
		t.Error("no room though all was marked")
	}
	tr.Done(last)
	wantPosition(t, "goes on", tr, last+1)
}

func TestManyAheadBeforeTheFirstDone(t *testing.T) {
	tr := trackerAt(t, 0, 0)
	tr.Delivered(manyMessages(0, 100_000, 1), 100_000)
	for i := int64(99_999); i >= 0; i-- {
		tr.Done(i)
	}
	wantPosition(t, "all done, the last one first", tr, 100_000)
}

// trackerModel is a Tracker of which every message is looked at each time.
type trackerModel struct {
	next, delivered int64
	offsets         []int64
	marked          map[int64]bool
}

func (m *trackerModel) oldest() int64 {
	for _, o := range m.offsets {
		if !m.marked[o] {
			return o
		}
	}
	return m.delivered
}

func (m *trackerModel) mark(offset int64) {
	if offset <= m.next {
		return
	}
	for _, o := range m.offsets {
		if o < offset {
			m.marked[o] = true
		}
	}
	if m.next = offset; len(m.offsets) == 0 || offset > m.offsets[len(m.offsets)-1] {
		m.next = max(offset, m.delivered)
	}
}

func (m *trackerModel) done(offset int64) {
	if slices.Contains(m.offsets, offset) {
		m.marked[offset] = true
	}
	m.next = max(m.next, m.oldest())
}

func (m *trackerModel) deliver(ms []sarama.ConsumerMessage, next int64) {
	all := m.next >= m.delivered
	for _, msg := range ms {
		m.offsets = append(m.offsets, msg.Offset)
		m.marked[msg.Offset] = msg.Offset < m.next
		all = msg.Offset < m.next
	}
	m.delivered = next
	if all {
		m.next = max(m.next, next)
	}
}

// held says whether the window of size holds back the message at offset.
func (m *trackerModel) held(offset int64, size int) bool {
	oldest := m.oldest()
	n := 0
	for _, o := range m.offsets {
		if o >= oldest && o < offset {
			n++
		}
	}
	return n >= size
}

func TestTrackerIsAsItsModel(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := 1 + random.IntN(20)
		tr, m, used := trackerAt(t, 5, size), &trackerModel{next: 5, delivered: 5, marked: map[int64]bool{}}, false
		for step := range 300 {
			some := 5 + random.Int64N(m.delivered+3)
			if len(m.offsets) > 0 && random.IntN(4) > 0 {
				some = m.offsets[max(0, len(m.offsets)-1-random.IntN(80))]
			}
			switch random.IntN(10) {
			case 0:
				var ms []sarama.ConsumerMessage
				next := m.delivered
				for range random.IntN(60) {
					next += int64(random.IntN(3) / 2 * random.IntN(9)) // most without a gap
					ms = append(ms, sarama.ConsumerMessage{Offset: next})
					next++
				}
				next += int64(random.IntN(2) * random.IntN(5))
				tr.Delivered(ms, next)
				m.deliver(ms, next)
			case 1:
				tr.Mark(some, "")
				m.mark(some)
			case 2:
				if got := tr.Room(some) != nil; used && slices.Contains(m.offsets, some) && got != m.held(some, size) {
					t.Fatalf("seed %d, step %d: %d is held back: %v", seed, step, some, got)
				}
			default:
				if m.delivered > 5 && random.IntN(3) > 0 {
					some = m.oldest()
				}
				tr.Done(some)
				m.done(some)
				used = true
			}
			if got, _, _ := tr.Marked(); got != m.next {
				t.Fatalf("seed %d, step %d: position %d, want %d", seed, step, got, m.next)
			}
		}
	}
}

// BenchmarkDone is what it costs to mark messages alone, in pairs of which the second is done first.
func BenchmarkDone(b *testing.B) {
	tr := NewCommitter(Options{}).Open(tp("t", 0), &fakeClaim{}, sarama.Uuid{}, 0, "")
	ms := manyMessages(0, 1000, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i += 2 {
		if at := i % 1000; at == 0 {
			for j := range ms {
				ms[j].Offset = int64(i + j)
			}
			tr.Delivered(ms, int64(i+1000))
		}
		if tr.Room(int64(i+1)) != nil {
			b.Fatal("held back")
		}
		tr.Done(int64(i + 1))
		tr.Done(int64(i))
	}
}

// isAt fails the test unless the position is this one, and to be committed or not.
func isAt(t *testing.T, tr *Tracker, want int64, dirty bool) {
	t.Helper()
	if got, _, d := tr.Marked(); got != want || d != dirty {
		t.Errorf("the position is %d, to be committed: %v; want %d, %v", got, d, want, dirty)
	}
}

// delivered returns a Tracker whose start, at 0, was committed, and to which ten messages were delivered.
func delivered(t *testing.T) *Tracker {
	tr := trackerAt(t, 0, 0)
	tr.dirty = false
	tr.Delivered(manyMessages(0, 10, 1), 10)
	return tr
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
			tr.Delivered(manyMessages(3, 7, 1), 10)
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
			tr.Delivered(manyMessages(20, 3, 1), 23)
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
			tr := delivered(t)
			tr.Mark(4, "")
			restart(t, tr)
		})
	}
}

// Without a mark the position that Restart sets is committed with the next mark: the user may commit in transactions. Nor is a
// gap of the log behind it committed.
func TestRestartWithoutMarks(t *testing.T) {
	tr := delivered(t)
	tr.Restart(3, 8)
	isAt(t, tr, 3, false)
	tr.Restart(20, 3)
	isAt(t, tr, 20, false)
	tr.Delivered(nil, 25)
	isAt(t, tr, 25, false)
	tr.Delivered(manyMessages(25, 2, 1), 27)
	tr.Mark(26, "")
	isAt(t, tr, 26, true)
}

// Offsets that were taken back stay so after a Restart, and the reverse.
func TestRestartAndWithhold(t *testing.T) {
	tr := delivered(t)
	tr.Mark(8, "")
	tr.Restart(2, 9)
	tr.Delivered(manyMessages(2, 8, 1), 10)
	tr.HandedAgain(7)
	tr.Withhold(func() (int64, bool) { return 5, true })
	if tr.Mark(7, "") || tr.Mark(8, "") || !tr.Mark(5, "") {
		t.Error("a mark counts that passes what was taken back, or what was not handed out again")
	}
	isAt(t, tr, 5, true)
}
