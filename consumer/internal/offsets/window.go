package offsets

import (
	"math/bits"
	"sort"

	"github.com/IBM/sarama"
)

const (
	// DefaultWindow is Options.MaxUnmarked when that is 0.
	DefaultWindow = 10_000

	// maxRuns bounds the runs of offsets without a gap that are kept before the first message is marked alone. A run takes 24
	// bytes.
	maxRuns = 1 << 16
	// maxAhead bounds the messages that are kept before the first message is marked alone. A message takes one bit.
	maxAhead = 1 << 24
)

// run is a run of delivered messages whose offsets have no gap: from up to, not including, to. Messages are numbered in order of
// delivery; end is the number of the last message plus one.
type run struct{ from, to, end int64 }

// first returns the number of the first message.
func (r run) first() int64 { return r.end - (r.to - r.from) }

// window has the delivered messages from the oldest unmarked one on, and which of them are marked alone. The zero value works. It
// has no lock.
type window struct {
	runs  []run    // in order; the first message of the first run is the oldest unmarked one
	count int64    // number of messages delivered so far, which is the number of the next one
	done  []uint64 // a ring of bits by number, a power of two long: the messages marked alone; nil before the first
	blind int64    // the window has dropped which messages below this offset were delivered
}

// used reports whether a message was ever marked alone.
func (w *window) used() bool { return w.done != nil }

// ahead returns the number of delivered messages from the oldest unmarked one on.
func (w *window) ahead() int64 {
	if len(w.runs) == 0 {
		return 0
	}
	return w.count - w.runs[0].first()
}

// oldest returns the offset of the oldest unmarked message, and false if all are marked.
func (w *window) oldest() (int64, bool) {
	if len(w.runs) == 0 {
		return 0, false
	}
	return w.runs[0].from, true
}

// deliver adds messages that are about to be handed out. next is the position after them.
func (w *window) deliver(messages []sarama.ConsumerMessage, next int64) {
	if n := len(messages); n > 0 && messages[n-1].Offset-messages[0].Offset == int64(n-1) {
		w.add(messages[0].Offset, messages[n-1].Offset+1)
	} else {
		for i := range messages {
			w.add(messages[i].Offset, messages[i].Offset+1)
		}
	}
	if !w.used() && len(w.runs) > maxRuns {
		w.forget(next)
	}
	w.grow()
}

// add adds the messages at from up to, not including, to.
func (w *window) add(from, to int64) {
	w.count += to - from
	if n := len(w.runs); n > 0 && w.runs[n-1].to == from {
		w.runs[n-1].to, w.runs[n-1].end = to, w.count
		return
	}
	w.runs = append(w.runs, run{from: from, to: to, end: w.count})
}

// forget drops the messages below offset, which bounds memory when a handler marks nothing.
func (w *window) forget(offset int64) { w.runs, w.blind = nil, offset }

// grow makes room in the ring for the delivered messages.
func (w *window) grow() {
	n := w.ahead()
	if !w.used() || n <= int64(len(w.done))*64 {
		return
	}
	old, oldest := w.done, w.runs[0].first()
	w.done = make([]uint64, ringLen(n))
	for i := oldest; i < oldest+int64(len(old))*64; i++ {
		if word, bit := place(old, i); old[word]&bit != 0 {
			word, bit := place(w.done, i)
			w.done[word] |= bit
		}
	}
}

// ringLen returns the length of a ring for n messages: a power of two.
func ringLen(n int64) int { return 1 << bits.Len64(uint64(max(n-1, 0))/64) }

// place returns the place of a message's bit in the ring.
func place(ring []uint64, number int64) (word int64, bit uint64) {
	return number / 64 & int64(len(ring)-1), 1 << (number % 64)
}

// number returns the number of the message at offset. It returns false when the message was not delivered, or when it and all
// messages before it are marked.
func (w *window) number(offset int64) (int64, bool) {
	i := sort.Search(len(w.runs), func(i int) bool { return w.runs[i].to > offset })
	if i == len(w.runs) || offset < w.runs[i].from {
		return 0, false
	}
	return w.runs[i].end - (w.runs[i].to - offset), true
}

// markDone marks the message at offset alone, and then drops the oldest messages up to the first unmarked one.
func (w *window) markDone(offset int64) {
	if !w.used() {
		if w.ahead() > maxAhead {
			w.forget(w.runs[len(w.runs)-1].to)
		}
		w.done = make([]uint64, ringLen(w.ahead()))
	}
	if number, ok := w.number(offset); ok {
		word, bit := place(w.done, number)
		w.done[word] |= bit
		w.advance()
	}
}

// markTo marks all messages below offset.
func (w *window) markTo(offset int64) {
	for len(w.runs) > 0 && w.runs[0].from < offset {
		w.clear(w.runs[0], min(offset, w.runs[0].to))
		w.skip(offset)
	}
	w.advance()
}

// clear clears the bits of the messages of r below to.
func (w *window) clear(r run, to int64) {
	if !w.used() {
		return
	}
	for i := r.first(); i < r.end-(r.to-to); i++ {
		word, bit := place(w.done, i)
		w.done[word] &^= bit
	}
}

// skip drops the messages below offset from the first run.
func (w *window) skip(offset int64) {
	if offset >= w.runs[0].to {
		w.runs = w.runs[1:]
		return
	}
	w.runs[0].from = offset
}

// advance drops the oldest messages up to the first that is not marked alone.
func (w *window) advance() {
	for w.used() && len(w.runs) > 0 {
		word, bit := place(w.done, w.runs[0].first())
		if w.done[word]&bit == 0 {
			return
		}
		w.done[word] &^= bit
		w.skip(w.runs[0].from + 1)
	}
}
