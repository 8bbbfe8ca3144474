package fetch

import (
	"time"

	"github.com/IBM/sarama"
)

// Batch is what one answer of a broker had of one partition.
type Batch struct {
	// Messages are in the order of their offsets. There may be none, if only Next
	// moved. Messages are handed out as pointers into this slice, which nobody
	// writes to after Next of a partition has returned it.
	Messages []sarama.ConsumerMessage

	// Next is the offset after the batch. It is larger than that after the last
	// message if control records, records of aborted transactions or gaps that
	// compaction left come behind it.
	Next int64

	// LeaderEpoch is that of the last record batch, -1 if it is not known.
	LeaderEpoch int32

	// EpochFrom is the offset from which on all record batches have LeaderEpoch. It is
	// above the first message's offset when the leader changed within the answer.
	EpochFrom int64

	size   int     // what the messages take in memory, in bytes
	data   int     // the part of size that is in keys, values and headers
	answer *answer // what these point into; nil if they have memory of their own
}

// answer is the memory of one answer of a broker. Messages that were not compressed
// point into it, so a single one keeps all of it alive.
type answer struct {
	bytes int
	users int // batches that partitions hold of it; guarded by the fetcher's mu
}

// hold notes that a partition holds the batch. The fetcher's mu is held.
func (f *Fetcher) hold(b *Batch) {
	if b.answer == nil {
		return
	}
	if b.answer.users++; b.answer.users == 1 {
		f.waste += b.answer.bytes
	}
	f.waste -= b.data
}

// release notes that a partition holds the batch no more. The fetcher's mu is held.
func (f *Fetcher) release(b *Batch) {
	if b.answer == nil {
		return
	}
	if b.answer.users--; b.answer.users == 0 {
		f.waste -= b.answer.bytes
	}
	f.waste += b.data
}

// copyOut copies what the messages point to, so that they keep no answer alive.
func (b *Batch) copyOut() {
	memory := make([]byte, 0, b.data)
	own := func(data []byte) []byte {
		if data == nil {
			return nil
		}
		memory = append(memory, data...)
		return memory[len(memory)-len(data) : len(memory) : len(memory)]
	}
	for i := range b.Messages {
		m := &b.Messages[i]
		m.Key, m.Value = own(m.Key), own(m.Value)
		for _, h := range m.Headers {
			h.Key, h.Value = own(h.Key), own(h.Value)
		}
	}
	b.answer = nil
}

// setEpoch notes that the record batches from offset from on, the last ones, have a leader epoch.
func (b *Batch) setEpoch(from int64, epoch int32) {
	if epoch != b.LeaderEpoch {
		b.LeaderEpoch, b.EpochFrom = epoch, from
	}
}

// Age returns how old a message with this timestamp is, 0 if that is none.
func Age(timestamp time.Time) time.Duration {
	if timestamp.UnixMilli() < 0 {
		return 0
	}
	return max(time.Since(timestamp), 0)
}

// messageOverhead is what a message takes in memory beside its key, value and headers, in bytes.
const messageOverhead = 160

// headerOverhead is the same of a header, in bytes.
const headerOverhead = 64

// sizeOf returns what the messages take in memory, and the part of it that is in keys,
// values and headers, in bytes.
func sizeOf(messages []sarama.ConsumerMessage) (size, data int) {
	size = len(messages) * messageOverhead
	for i := range messages {
		m := &messages[i]
		data += len(m.Key) + len(m.Value)
		for _, h := range m.Headers {
			data += len(h.Key) + len(h.Value)
			size += headerOverhead
		}
	}
	return size + data, data
}
