package fetch

import (
	"encoding/binary"
	"reflect"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// result is what an answer had of one partition.
type result struct {
	err      error
	batch    Batch // Next is the position asked for if nothing was passed
	end      int64
	stable   int64
	start    int64
	follower int32
	check    *check
	shares   bool  // messages of the batch point into the answer
	accepted bool  // Kafka has the position, though the comparison is not done
	passed   bool  // the comparison was refused and is left out; nothing else is known
	diverges int64 // where the log differs from what was read; -1: it does not, as far as known
}

// parse reads the partition's part of an answer. It holds no lock.
func (e *entry) parse(resp *sarama.FetchResponse, s *settings) result {
	r := result{batch: Batch{Next: e.position, LeaderEpoch: e.epoch, EpochFrom: e.position}, follower: -1, check: e.check, diverges: -1}
	if resp.ErrorCode != 0 {
		r.err = sarama.KError(resp.ErrorCode)
		return r
	}
	block := resp.GetBlock(e.p.topic, e.p.id)
	if block == nil {
		r.err = errIncomplete
		return r
	}
	r.end, r.stable, r.start, r.follower = block.HighWaterMarkOffset, block.LastStableOffset, block.LogStartOffset, block.PreferredReadReplica
	if s.version < 5 {
		r.start = -1
	}
	if block.Err != sarama.ErrNoError {
		r.err = block.Err
	}
	if e.check != nil && r.compare(e, block) {
		return r
	}
	if r.err == nil {
		r.read(e, block, s.Config.Consumer.IsolationLevel)
	}
	return r
}

// read fills the batch with the messages that may be seen.
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
		r.batch.Next = max(r.batch.Next, passed(block))
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
			r.batch.setEpoch(b.FirstOffset, b.PartitionLeaderEpoch)
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

// readBatch appends the records from Next on, and raises Next. An offset that does not
// grow is left out: what reads them relies on their order.
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
		m.Key, m.Value, m.Headers = rec.Key, rec.Value, rec.Headers
		m.Timestamp = b.MaxTimestamp
		if !b.LogAppendTime {
			m.Timestamp = b.FirstTimestamp.Add(rec.TimestampDelta)
		}
	}
	r.batch.Next = next
}

// readLegacy reads messages of the formats before record batches. Offsets inside of a
// compressed set of format 1 count from its start.
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
				Key: m.Msg.Key, Value: m.Msg.Value,
			})
			r.batch.Next = offset + 1
		}
		r.batch.Next = max(r.batch.Next, outer.Offset+1)
		r.batch.setEpoch(outer.Offset, -1)
	}
}

// passed returns the offset after record batches that hold no record, as compaction
// leaves them, or before which there is nothing; 0 when the answer has none. sarama
// drops such batches, and keeps the offset in a field that it does not export.
func passed(block *sarama.FetchResponseBlock) int64 {
	for _, records := range block.RecordsSet {
		if b := records.RecordBatch; b != nil {
			return b.FirstOffset // it came in part
		}
	}
	next := reflect.ValueOf(block).Elem().FieldByName("recordsNextOffset")
	if !next.IsValid() || next.Kind() != reflect.Pointer || next.IsNil() {
		return 0
	}
	return next.Elem().Int()
}

// hidden knows which record batches of one answer are not to be seen: control
// batches, and for READ_COMMITTED those of aborted transactions.
type hidden struct {
	committed bool
	aborted   []*sarama.AbortedTransaction // that begin later, by first offset
	producers map[int64]bool               // whose transaction at this place was aborted
}

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

// hides must be called for each batch, in order.
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

// aborts reports whether a control batch ends a transaction that was aborted. A control
// record's key is its version and its type, 0 for an abort.
func aborts(b *sarama.RecordBatch) bool {
	return len(b.Records) > 0 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0
}

// apply changes the partition by what came of it. The fetcher's mu is held.
func (p *Partition) apply(e *entry, r *result, now time.Time) {
	if r.err != nil {
		p.refused(r.err, now)
		return
	}
	if r.passed {
		p.check, p.quiet = nil, false
		return
	}
	p.end, p.stable, p.start = max(r.end, 0), r.stable, r.start // below 0 it would count as not asked for yet
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
		p.failed(cut)
		p.fail(cut)
		return
	}
	if p.check == nil || r.accepted {
		p.settle()
	}
	moved, missing := r.batch.Next > p.position, p.readable() > e.ask && !p.check.searches()
	p.quiet = !moved && !missing
	switch {
	case moved:
		p.push(r.batch)
		if p.share() < e.share {
			p.trim()
		}
		p.alone, p.size = false, 0
	case p.check.searches():
		p.alone = true
	case missing && e.alone && p.size >= maxFetch:
		p.retry(errNoProgress)
		return
	case missing:
		// There is something that did not come: a record batch larger than was
		// asked for. Kafka gives out one batch whole if it is the first in an answer.
		p.alone, p.size = true, min(2*p.fetchSize(), maxFetch)
	default:
		p.alone, p.size = false, 0
	}
	p.works(moved)
}

// works notes that an answer was of use, and whether it had something.
func (p *Partition) works(moved bool) {
	p.failing, p.backoff = time.Time{}, 0
	if !p.of.maySomethingFail() {
		return
	}
	p.of.works(kindFetch, p.String())
	if moved {
		p.of.works(kindStall, p.String())
	}
}

// push appends what was read to the queue.
func (p *Partition) push(b Batch) {
	p.position, p.epoch = b.Next, b.LeaderEpoch
	if last := len(p.queue) - 1; len(b.Messages) == 0 && last >= 0 {
		p.queue[last].Next = b.Next
		p.queue[last].setEpoch(b.EpochFrom, b.LeaderEpoch)
		return
	}
	p.queue = append(p.queue, b)
	p.buffered += b.size
	p.of.hold(&b)
	p.signal()
}

// refused acts on an error code.
func (p *Partition) refused(err error, now time.Time) {
	if err != sarama.ErrOffsetOutOfRange { //nolint:errorlint // a bare code
		p.retry(err)
		return
	}
	p.failed(err)
	p.outside = p.follower < 0 // a follower may lag behind: the leader is asked
	p.follower = -1
	p.lookAfter(now, p.backoff)
}
