package offsets

import (
	"time"

	"github.com/IBM/sarama"
)

// Kafka stores the offsets of a request in one record batch, which must not be larger than the brokers' message.max.bytes: 1 MiB
// unless changed. If it is, Kafka 3 says so, and Kafka 4 answers with an unknown error.
const (
	// maxRequest is how much a request has Kafka store at most, in bytes, unless it has one offset alone.
	maxRequest = 512 << 10
	// unknownSize is the size from which on an unknown error may mean that a request is too large.
	unknownSize = 16 << 10
	// recordSize is what a stored offset takes at most beside the names of group and topic and the metadata.
	recordSize = 100
	// shrunkFor is for how long requests are smaller after Kafka has refused one.
	shrunkFor = 10 * time.Minute
)

// size returns how much Kafka stores for cs, at most.
func (o *KafkaStore) size(cs []OffsetCommit) int {
	n := 0
	for _, c := range cs {
		n += recordSize + len(o.Group) + len(c.Partition.Topic) + len(metadataOf(c).String())
	}
	return n
}

// fitting returns how many of cs one request has: as many as it has room for, and one at least.
func (o *KafkaStore) fitting(cs []OffsetCommit) int {
	room := maxRequest
	if time.Now().Before(o.roomUntil) {
		room = o.room
	}
	for i := range cs {
		if room -= o.size(cs[i : i+1]); room < 0 && i > 0 {
			return i
		}
	}
	return len(cs)
}

// shrink halves the requests, because Kafka has refused cs together.
func (o *KafkaStore) shrink(cs []OffsetCommit) {
	o.room, o.roomUntil = o.size(cs)/2, time.Now().Add(shrunkFor)
}

// tooLarge reports whether Kafka refuses what an offset is stored with, or a request's offsets together, for their size.
func tooLarge(kerr sarama.KError) bool {
	return kerr == sarama.ErrOffsetMetadataTooLarge || requestTooLarge(kerr)
}

// requestTooLarge reports whether Kafka refuses a request's offsets together. It judges the metadata of each offset alone.
func requestTooLarge(kerr sarama.KError) bool {
	switch kerr {
	case sarama.ErrInvalidCommitOffsetSize, sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge:
		return true
	default:
		return false
	}
}
