package fetch

import (
	"time"

	"github.com/IBM/sarama"
)

// Batch is the messages of one partition in one answer of a broker.
type Batch struct {
	// Messages are in the order of their offsets. There may be none, if only Next moved. Messages are handed out as pointers into
	// this slice, which nobody writes to after Next of a partition has returned it. No key, value or header has spare capacity.
	Messages []sarama.ConsumerMessage

	// Next is the offset after the batch. It is larger than the offset after the last message if control records, records of
	// aborted transactions or gaps that compaction left follow that message.
	Next int64

	// LeaderEpoch is that of the last record batch; -1 if it is not known.
	LeaderEpoch int32

	// LeaderEpochFrom is the offset from which on all record batches have LeaderEpoch. It is above the first message's offset
	// when the leader changed within the answer.
	LeaderEpochFrom int64

	size   int     // bytes that the messages take in memory
	data   int     // the part of size that is in keys, values and headers
	answer *answer // the memory into which keys, values and headers point; nil if they have memory of their own
}

// answer is the memory of one answer of a broker. Messages that were not compressed point into it, so a single message keeps the
// whole answer in memory.
type answer struct {
	bytes int
	users int // number of batches of the answer that partitions keep; guarded by the fetcher's mu
}

// retain counts a batch that a partition keeps. The fetcher's mu is held.
func (f *Fetcher) retain(b *Batch) {
	if b.answer == nil {
		return
	}
	if b.answer.users++; b.answer.users == 1 {
		f.waste += b.answer.bytes
	}
	f.waste -= b.data
}

// release ends retain. The fetcher's mu is held.
func (f *Fetcher) release(b *Batch) {
	if b.answer == nil {
		return
	}
	if b.answer.users--; b.answer.users == 0 {
		f.waste -= b.answer.bytes
	}
	f.waste += b.data
}

// copyOut copies keys, values and headers, so that the messages do not keep the answer in memory.
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

// setLeaderEpoch sets the leader epoch of the last record batches, which begin at offset from.
func (b *Batch) setLeaderEpoch(from int64, leaderEpoch int32) {
	if leaderEpoch != b.LeaderEpoch {
		b.LeaderEpoch, b.LeaderEpochFrom = leaderEpoch, from
	}
}

// Age returns the age of a message with this timestamp; 0 if it has none.
func Age(timestamp time.Time) time.Duration {
	if timestamp.UnixMilli() < 0 {
		return 0
	}
	return max(time.Since(timestamp), 0)
}

// messageOverhead is how many bytes a message takes in memory beside its key, value and headers.
const messageOverhead = 160

// headerOverhead is how many bytes a header takes in memory beside its key and value.
const headerOverhead = 64

// sizeOf returns how many bytes the messages take in memory, and how many of these are in keys, values and headers.
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
