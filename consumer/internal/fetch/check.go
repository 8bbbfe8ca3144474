package fetch

import "github.com/IBM/sarama"

// check compares the last batch that was read with a new leader's log (KIP-320). It fetches the record batch before the position,
// and compares its leader epoch. If the epoch differs, an unclean election has truncated the log below the position. Then check
// searches for the first batch of a later epoch, because everything from that batch on was written anew.
type check struct {
	searching bool
	least     bool  // the batch to compare is fetched alone, because more could not be decoded
	atEnd     bool  // the log seems to end before the batch to compare, so the position itself is fetched, to learn whether Kafka has it
	low, high int64 // the bounds of the search
	epoch     int32 // the leader epoch that was found in place of the expected one
}

// ask returns the offset to fetch in the next step.
func (c *check) ask(position int64) int64 {
	switch {
	case c.searching:
		return c.low + (c.high-c.low)/2
	case c.atEnd:
		return position
	default:
		return position - 1
	}
}

// searches returns whether a search runs. c may be nil.
func (c *check) searches() bool { return c != nil && c.searching }

// compare takes the check a step further. It returns true when the answer has no messages to read.
func (r *result) compare(e *entry, block *sarama.FetchResponseBlock) bool {
	if e.follower && r.misses(e, block) {
		r.err = sarama.ErrOffsetOutOfRange // a follower may lag behind, and says nothing about the leader's log
		return true
	}
	if e.check.searching {
		r.search(e, block)
		return true
	}
	if e.check.atEnd {
		r.check, r.accepted = &check{}, r.err == nil // an error is handled as that of any fetch
		return true
	}
	if r.err != nil {
		if r.err == sarama.ErrOffsetOutOfRange { //nolint:errorlint // a bare code
			r.err, r.check, r.passed = nil, nil, true // retention has removed the batch to compare, or the next request fails, too
		}
		return true
	}
	b := batchAt(block, e.ask)
	switch {
	case e.epoch > e.leader: // the leader accepts only requests of its own epoch, and its log has no higher one
		r.check, r.batch.LeaderEpoch = nil, -1
		return false
	case b == nil && len(block.RecordsSet) == 0 && r.past < e.position && e.p.of.settings.readable(r.end, r.stable) <= e.ask:
		r.check = &check{atEnd: true} // the log was truncated, or the leader does not know its high watermark yet
		return true
	case b == nil && len(block.RecordsSet) == 0 && !e.alone && r.past < e.position:
		return true // the batch did not come
	case b == nil, b.FirstOffset > e.ask, b.PartitionLeaderEpoch < 0, b.PartitionLeaderEpoch == e.epoch:
		r.check = nil // the log is the same, as far as it can be compared
		return false
	case b.PartitionLeaderEpoch < e.epoch:
		r.check = &check{epoch: b.PartitionLeaderEpoch}
		r.diverges = b.FirstOffset
	default:
		r.check = &check{searching: true, low: max(block.LogStartOffset, 0), high: b.FirstOffset, epoch: b.PartitionLeaderEpoch}
		r.conclude()
	}
	return true
}

// misses returns whether the broker's log does not have the offset, or, in a search, no batch from there on.
func (r *result) misses(e *entry, block *sarama.FetchResponseBlock) bool {
	if r.err != nil {
		return r.err == sarama.ErrOffsetOutOfRange //nolint:errorlint // a bare code
	}
	return e.check.searching && batchAt(block, e.ask) == nil && r.past <= e.ask
}

// search halves the range of the search.
func (r *result) search(e *entry, block *sarama.FetchResponseBlock) {
	c := *e.check
	r.check = &c
	b := batchAt(block, e.ask)
	switch {
	case r.err != nil && r.err != sarama.ErrOffsetOutOfRange: //nolint:errorlint // a bare code
		return
	case b == nil: // the range has no batch to compare
		r.err, c.low = nil, c.high
	case b.PartitionLeaderEpoch > e.epoch:
		c.high = min(e.ask, b.FirstOffset)
	default:
		c.low = b.LastOffset() + 1
	}
	r.conclude()
}

// conclude ends the search when its range is empty.
func (r *result) conclude() {
	if r.check.low >= r.check.high {
		r.diverges = r.check.high
	}
}

// batchAt returns the record batch that has offset, or else the first one after it; nil if there is none. The header of an
// incomplete batch is enough.
func batchAt(block *sarama.FetchResponseBlock, offset int64) *sarama.RecordBatch {
	for _, records := range block.RecordsSet {
		if b := records.RecordBatch; b != nil && b.LastOffset() >= offset {
			return b
		}
	}
	return nil
}
