package fetch

import (
	"time"

	"github.com/IBM/sarama"
)

// Batch is messages of one partition, of one record batch or several.
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

	size int // bytes that the messages take in memory
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
