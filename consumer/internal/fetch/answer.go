package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// result is one partition's part of an answer.
type result struct {
	err      error
	batch    Batch  // the messages; Next is the position asked for if no offset was passed
	end      int64  // the high watermark
	stable   int64  // the last stable offset
	follower int32  // the follower that the leader names for fetching (KIP-392); -1 for none
	check    *check // the next step of the comparison; nil when it is done
	shares   bool   // messages of the batch point into the answer
	accepted bool   // Kafka has the position, though the comparison is not done
	past     int64  // the offset up to which an answer without records shows that the log has none; 0 if it does not
	passed   bool   // the comparison is left out, because Kafka does not have the batch to compare; other fields are not set
	diverges int64  // the first offset at which the log differs from the messages read; -1 if it does not, as far as known
	first    int64  // the first offset of the answer, for an entry that probes
}

// parse reads the partition's part of an answer. It holds no lock.
func (e *entry) parse(resp *sarama.FetchResponse, s *settings) result {
	r := result{batch: Batch{Next: e.position, LeaderEpoch: e.epoch, LeaderEpochFrom: e.position}, follower: -1, check: e.check, diverges: -1}
	if resp.ErrorCode != 0 {
		r.err = sarama.KError(resp.ErrorCode)
		return r
	}
	block := resp.GetBlock(e.p.topic, e.p.id)
	switch {
	case block == nil && resp.ThrottleTime > 0:
		r.err = fmt.Errorf("%w: throttled for %v", errQuota, resp.ThrottleTime)
		return r
	case block == nil:
		r.err = errIncomplete
		return r
	case e.probes:
		if r.err = block.Err; r.err == sarama.ErrNoError || r.err == sarama.ErrOffsetOutOfRange { //nolint:errorlint // bare codes
			r.err, r.first = nil, firstOffset(block, e.ask)
		}
		return r
	}
	r.end, r.stable, r.follower = block.HighWaterMarkOffset, block.LastStableOffset, block.PreferredReadReplica
	past, err := s.passed(block)
	switch {
	case block.Err != sarama.ErrNoError:
		r.err = block.Err
	case err != nil:
		r.err = &decodingError{fmt.Errorf("%s at offset %d: no records, and no offset after them: %w", e.p, e.ask, err)}
		return r
	}
	r.past = past
	if e.check != nil && r.compare(e, block) {
		return r
	}
	if r.err == nil {
		r.read(e, block, s.Config.Consumer.IsolationLevel)
	}
	return r
}

// read fills the batch with the messages that the isolation level does not hide.
func (r *result) read(e *entry, block *sarama.FetchResponseBlock, isolation sarama.IsolationLevel) {
	count := 0
	for _, records := range block.RecordsSet {
		switch {
		case records.RecordBatch != nil:
			count += len(records.RecordBatch.Records)
		case records.MsgSet != nil:
			for _, outer := range records.MsgSet.Messages {
				count += len(outer.Messages())
			}
		}
	}
	if count == 0 {
		r.batch.Next = max(r.batch.Next, r.past)
		return
	}
	r.batch.Messages = make([]sarama.ConsumerMessage, 0, count)
	hidden := hiding(block, isolation)
	for _, records := range block.RecordsSet {
		switch b := records.RecordBatch; {
		case b != nil && b.PartialTrailingRecord:
		case b != nil:
			if !hidden.hides(b) {
				r.readBatch(e.p, b)
				r.shares = r.shares || b.Codec == sarama.CompressionNone
			}
			r.batch.Next = max(r.batch.Next, b.LastOffset()+1)
			r.batch.setLeaderEpoch(b.FirstOffset, b.PartitionLeaderEpoch)
		case records.MsgSet != nil:
			r.readLegacy(e.p, records.MsgSet)
			r.shares = true
		}
	}
	if m := r.batch.Messages; len(m) < cap(m)/2 { // most were hidden
		r.batch.Messages = slices.Clip(slices.Clone(m))
	}
	r.batch.size, r.batch.data = sizeOf(r.batch.Messages)
}

// readBatch appends the records from Next on, and raises Next. It leaves out an offset that does not grow, because the readers of
// the messages rely on their order.
//
// The slices of all messages are parts of one buffer. Their capacity is clipped, so that a handler which appends to one of them
// gets a copy, and does not write over the next message.
func (r *result) readBatch(p *Partition, b *sarama.RecordBatch) {
	next := r.batch.Next
	for _, rec := range b.Records {
		offset := b.FirstOffset + rec.OffsetDelta
		if offset < next {
			continue
		}
		next = offset + 1
		// In place: appending a literal would copy it once more, and this is the hot path.
		r.batch.Messages = r.batch.Messages[:len(r.batch.Messages)+1]
		m := &r.batch.Messages[len(r.batch.Messages)-1]
		m.Topic, m.Partition, m.Offset = p.topic, p.id, offset
		m.Key, m.Value, m.Headers = slices.Clip(rec.Key), slices.Clip(rec.Value), slices.Clip(rec.Headers)
		for _, h := range m.Headers {
			h.Key, h.Value = slices.Clip(h.Key), slices.Clip(h.Value)
		}
		m.Timestamp = b.MaxTimestamp
		if !b.LogAppendTime {
			m.Timestamp = b.FirstTimestamp.Add(rec.TimestampDelta)
		}
	}
	r.batch.Next = next
}

// readLegacy reads messages of the formats before record batches. Offsets inside of a compressed set of format 1 count from the
// set's start (KIP-31).
func (r *result) readLegacy(p *Partition, set *sarama.MessageSet) {
	for _, outer := range set.Messages {
		inner := outer.Messages()
		for _, m := range inner {
			offset, timestamp := m.Offset, m.Msg.Timestamp
			if m.Msg.Version >= 1 {
				offset += outer.Offset - inner[len(inner)-1].Offset
				if m.Msg.LogAppendTime {
					timestamp = outer.Msg.Timestamp
				}
			}
			if offset < r.batch.Next {
				continue
			}
			r.batch.Messages = append(r.batch.Messages, sarama.ConsumerMessage{
				Topic: p.topic, Partition: p.id, Offset: offset, Timestamp: timestamp, BlockTimestamp: outer.Msg.Timestamp,
				Key: slices.Clip(m.Msg.Key), Value: slices.Clip(m.Msg.Value),
			})
			r.batch.Next = offset + 1
		}
		r.batch.Next = max(r.batch.Next, outer.Offset+1)
		r.batch.setLeaderEpoch(outer.Offset, -1)
	}
}

// passed returns the offset up to which an answer without records shows that the log has no records: the offset after batches
// that compaction has emptied, or the start of a batch that came in part. It is 0 when the answer has no batch. An error says that
// nothing came but perhaps batches that sarama has dropped.
func (s *settings) passed(block *sarama.FetchResponseBlock) (int64, error) {
	for _, records := range block.RecordsSet {
		if b := records.RecordBatch; b != nil {
			return b.FirstOffset, nil // if the answer has no records, the batch came in part
		}
	}
	offset, err := s.next.of(block)
	if len(block.RecordsSet) > 0 {
		return offset, nil
	}
	return offset, err
}

// hidden finds the record batches of one answer that readers must not see: control batches, and for READ_COMMITTED those of
// aborted transactions (KIP-98).
type hidden struct {
	committed bool                         // the isolation level is READ_COMMITTED
	aborted   []*sarama.AbortedTransaction // the aborted transactions that begin later, by first offset
	producers map[int64]bool               // the producers whose current transaction was aborted
}

// hiding returns the hidden batches of an answer.
func hiding(block *sarama.FetchResponseBlock, isolation sarama.IsolationLevel) *hidden {
	h := &hidden{committed: isolation == sarama.ReadCommitted}
	if h.committed && len(block.AbortedTransactions) > 0 {
		h.aborted = slices.SortedFunc(slices.Values(block.AbortedTransactions), func(a, b *sarama.AbortedTransaction) int {
			return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
		})
		h.producers = map[int64]bool{}
	}
	return h
}

// hides returns whether a batch is hidden. It must be called for each batch of the answer, in order.
func (h *hidden) hides(b *sarama.RecordBatch) bool {
	for len(h.aborted) > 0 && h.aborted[0].FirstOffset <= b.LastOffset() {
		h.producers[h.aborted[0].ProducerID] = true
		h.aborted = h.aborted[1:]
	}
	if b.Control {
		if aborts(b) {
			delete(h.producers, b.ProducerID)
		}
		return true
	}
	return h.committed && b.IsTransactional && h.producers[b.ProducerID]
}

// aborts returns whether a control batch ends a transaction that was aborted. The key of a control record is its version and its
// type; the type of an abort is 0 (KIP-98).
func aborts(b *sarama.RecordBatch) bool {
	return len(b.Records) > 0 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0
}

// apply updates the partition with the result of its entry. received is the number of bytes of the answer. The fetcher's mu is held.
func (p *Partition) apply(e *entry, r *result, received int64, now time.Time) {
	switch {
	case r.err != nil:
		p.refused(r.err, now)
		return
	case e.probes:
		p.probed(e, r.first)
		return
	case r.passed:
		p.check, p.quiet = nil, false
		return
	}
	p.end, p.stable = max(r.end, 0), r.stable // an end below 0 would mean that there was no answer yet
	p.endAt = now
	if r.follower >= 0 && p.follower < 0 && r.follower != p.node.at.ID {
		p.follower, p.lease = r.follower, now.Add(p.of.settings.lease)
		p.look()
		return
	}
	p.check = r.check
	if r.diverges >= 0 {
		cut := &TruncatedError{
			Topic: p.topic, Partition: p.id, Position: p.position, Diverges: r.diverges, Epoch: p.epoch, Found: r.check.epoch,
		}
		p.countFailure(cut)
		p.forgetUnreadable()
		p.fail(cut)
		return
	}
	if awaited := e.check != nil && p.hunt != nil; p.check == nil && !awaited || r.accepted { // awaited: the batch at the position comes next
		p.decide()
	}
	moved, missing := r.batch.Next > p.position, p.readable() > e.ask && !p.check.searches()
	p.quiet = !moved && !missing
	switch {
	case moved:
		p.push(r.batch)
		if p.share() < e.share {
			p.trim()
		}
		p.alone, p.size = p.isBeforeUnreadable(), 0
	case p.check.searches():
		p.alone = true
	case missing && e.alone && (p.size >= maxFetch || p.hunt != nil && e.check == nil):
		p.hunt = nil
		p.retry(errNoProgress)
		return
	case missing:
		// There are messages that did not come: a record batch is larger than the size asked for. Kafka sends one batch whole if
		// it is the first in an answer (KIP-74).
		p.alone, p.size = true, min(2*p.fetchSize(), maxFetch)
	default:
		p.alone, p.size = false, 0
	}
	if p.hunt != nil && e.check == nil {
		p.went(received, moved)
	}
	p.works(moved)
}

// works ends the partition's back-off, and its errors in the log: not the one about a batch that can't be read until reading has passed
// that batch, since the messages before it come again at each attempt. moved says that the answer has raised the position.
func (p *Partition) works(moved bool) {
	p.failing, p.hungry, p.backoff = time.Time{}, time.Time{}, 0
	if !p.of.maySomethingFail() {
		return
	}
	if !p.isBeforeUnreadable() {
		p.of.works(kindFetch, p.String())
	}
	if moved {
		p.of.works(kindStall, p.String())
	}
}

// push appends a batch to the queue.
func (p *Partition) push(b Batch) {
	p.position, p.epoch = b.Next, b.LeaderEpoch
	if last := len(p.queue) - 1; len(b.Messages) == 0 && last >= 0 {
		p.queue[last].Next = b.Next
		p.queue[last].setLeaderEpoch(b.LeaderEpochFrom, b.LeaderEpoch)
		return
	}
	p.queue = append(p.queue, b)
	p.buffered += b.size
	p.of.retain(&b)
	p.signal()
}

// refused handles an error code of Kafka.
func (p *Partition) refused(err error, now time.Time) {
	if errors.Is(err, errQuota) {
		p.starved(err, now)
		return
	}
	if err != sarama.ErrOffsetOutOfRange { //nolint:errorlint // a bare code
		p.retry(err)
		return
	}
	p.countFailure(err)
	p.outside = p.follower < 0 // a follower may lag behind, so the leader is asked next
	p.follower = -1
	p.lookAfter(now, p.backoff)
}

// starved handles an answer without messages because of a quota. The broker is the right one, and is asked again when it does not
// throttle any more. The time does not count for the patience with other errors.
func (p *Partition) starved(err error, now time.Time) {
	p.countFailure(err)
	p.failure = err
	if p.hungry.IsZero() {
		p.hungry = now
	}
	if now.Sub(p.hungry) >= patience {
		p.of.failed(kindFetch, p.String(), err)
	}
}
