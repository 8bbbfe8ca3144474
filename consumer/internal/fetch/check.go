package fetch

import "github.com/IBM/sarama"

// check compares what was read last with a new leader's log: it fetches the record
// batch before the position, and looks at its leader epoch. If that is another
// one, an unclean election has cut off what was read, and check searches for the
// first batch of a later epoch, because all from there on was written anew.
type check struct {
	searching bool
	atEnd     bool  // the log seems to end before what is compared: the position itself is fetched, to learn whether Kafka has it
	low, high int64 // what is searched for is in low to high
	epoch     int32 // the one that was found in place of ours
}

// ask returns the offset to fetch.
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

func (c *check) searches() bool { return c != nil && c.searching }

// compare takes the check a step further. It returns true when the answer is of no other use.
func (r *result) compare(e *entry, block *sarama.FetchResponseBlock) bool {
	if e.follower && r.misses(e, block) {
		r.err = sarama.ErrOffsetOutOfRange // it may lag behind, and says nothing about the leader's log
		return true
	}
	if e.check.searching {
		r.search(e, block)
		return true
	}
	if e.check.atEnd {
		r.check, r.accepted = &check{}, r.err == nil // an error is judged as that of any fetch
		return true
	}
	if r.err != nil {
		if r.err == sarama.ErrOffsetOutOfRange { //nolint:errorlint // a bare code
			r.err, r.check, r.passed = nil, nil, true // retention has taken what it would be compared with, or the next request says what is wrong
		}
		return true
	}
	b := batchAt(block, e.ask)
	switch {
	case e.epoch > e.leader: // the leader takes requests of its own epoch alone, and its log has none above
		r.check, r.batch.LeaderEpoch = nil, -1
		return false
	case b == nil && len(block.RecordsSet) == 0 && passed(block) < e.position && e.p.of.settings.readable(r.end, r.stable) <= e.ask:
		r.check = &check{atEnd: true} // the log was cut off, or the leader does not know yet how far it may be read
		return true
	case b == nil && len(block.RecordsSet) == 0 && !e.alone && passed(block) < e.position:
		return true // it did not come
	case b == nil, b.FirstOffset > e.ask, b.PartitionLeaderEpoch < 0, b.PartitionLeaderEpoch == e.epoch:
		r.check = nil // as far as can be seen
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

// misses reports whether the log that was asked does not have the offset, or, in a search, nothing from there on.
func (r *result) misses(e *entry, block *sarama.FetchResponseBlock) bool {
	if r.err != nil {
		return r.err == sarama.ErrOffsetOutOfRange //nolint:errorlint // a bare code
	}
	return e.check.searching && batchAt(block, e.ask) == nil && passed(block) <= e.ask
}

// search looks at the middle of what is left.
func (r *result) search(e *entry, block *sarama.FetchResponseBlock) {
	c := *e.check
	r.check = &c
	b := batchAt(block, e.ask)
	switch {
	case r.err != nil && r.err != sarama.ErrOffsetOutOfRange: //nolint:errorlint // a bare code
		return
	case b == nil: // nothing more can be found out
		r.err, c.low = nil, c.high
	case b.PartitionLeaderEpoch > e.epoch:
		c.high = min(e.ask, b.FirstOffset)
	default:
		c.low = b.LastOffset() + 1
	}
	r.conclude()
}

// conclude ends the search when there is nothing left to search in.
func (r *result) conclude() {
	if r.check.low >= r.check.high {
		r.diverges = r.check.high
	}
}

// batchAt returns the record batch that holds offset, or else the first one behind it.
// The header of an incomplete batch is enough.
func batchAt(block *sarama.FetchResponseBlock, offset int64) *sarama.RecordBatch {
	for _, records := range block.RecordsSet {
		if b := records.RecordBatch; b != nil && b.LastOffset() >= offset {
			return b
		}
	}
	return nil
}
