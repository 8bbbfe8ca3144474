package fetch

import (
	"slices"

	"github.com/IBM/sarama"
)

// Messages of the formats before record batches are decoded by sarama. A partition in whose log they are is fetched alone as long as
// they come, and the answers are passed on to sarama.

// partOf returns a partition's part of an answer that sarama has decoded; nil if there is none. Record batches in it are not its own:
// they are fetched again.
func partOf(block *sarama.FetchResponseBlock) *part {
	if block == nil {
		return nil
	}
	return &part{
		code: block.Err, end: block.HighWaterMarkOffset, stable: block.LastStableOffset, start: block.LogStartOffset,
		follower: block.PreferredReadReplica, legacy: true, decoded: block,
	}
}

// readLegacy reads the messages before the first record batch.
func (r *result) readLegacy(e *entry, block *sarama.FetchResponseBlock) {
	var messages []sarama.ConsumerMessage
	for _, records := range block.RecordsSet {
		if records.MsgSet == nil {
			break
		}
		r.legacy = true
		for _, outer := range records.MsgSet.Messages {
			messages = r.readMessages(messages, e.p, outer)
		}
	}
	if r.legacy {
		s := stretch{messages: messages, next: r.next, leaderEpoch: -1, leaderEpochFrom: e.position, bytes: sizeOf(messages)}
		r.got = append(r.got, s)
	}
}

// readMessages appends a message, or the messages in a compressed one. Offsets inside of a compressed message of format 1 count from
// the set's start (KIP-31).
func (r *result) readMessages(out []sarama.ConsumerMessage, p *Partition, outer *sarama.MessageBlock) []sarama.ConsumerMessage {
	inner := outer.Messages()
	for _, m := range inner {
		offset, timestamp := m.Offset, m.Msg.Timestamp
		if m.Msg.Version >= 1 {
			offset += outer.Offset - inner[len(inner)-1].Offset
			if m.Msg.LogAppendTime {
				timestamp = outer.Msg.Timestamp
			}
		}
		if offset < r.next {
			continue
		}
		out = append(out, sarama.ConsumerMessage{
			Topic: p.topic, Partition: p.id, Offset: offset, Timestamp: timestamp, BlockTimestamp: outer.Msg.Timestamp,
			Key: slices.Clip(m.Msg.Key), Value: slices.Clip(m.Msg.Value),
		})
		r.next = offset + 1
	}
	r.next = max(r.next, outer.Offset+1)
	return out
}

// sizeOf returns how many bytes messages take in memory.
func sizeOf(messages []sarama.ConsumerMessage) int {
	size := len(messages) * messageOverhead
	for i := range messages {
		size += len(messages[i].Key) + len(messages[i].Value)
	}
	return size
}
