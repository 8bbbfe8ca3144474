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
func (r *result) compare(e *entry, p *part) bool {
	if e.follower && r.misses(e, p) {
		r.err = sarama.ErrOffsetOutOfRange // a follower may lag behind, and says nothing about the leader's log
		return true
	}
	if e.check.searching {
		r.search(e, p)
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
	b := batchAt(p, e.ask)
	switch {
	case e.epoch > e.leader: // the leader accepts only requests of its own epoch, and its log has no higher one
		r.check, r.unknown = nil, true
		return false
	case len(p.batches) == 0 && r.past < e.position && e.p.of.settings.readable(r.end, r.stable) <= e.ask:
		r.check = &check{atEnd: true} // the log was truncated, or the leader does not know its high watermark yet
		return true
	case len(p.batches) == 0 && !e.alone && r.past < e.position:
		return true // the batch did not come
	case b == nil, b.first > e.ask, b.epoch < 0, b.epoch == e.epoch:
		r.check = nil // the log is the same, as far as it can be compared
		return false
	case b.epoch < e.epoch:
		r.check = &check{epoch: b.epoch}
		r.diverges = b.first
	default:
		r.check = &check{searching: true, low: max(p.start, 0), high: b.first, epoch: b.epoch}
		r.conclude()
	}
	return true
}

// misses returns whether the broker's log does not have the offset, or, in a search, no batch from there on.
func (r *result) misses(e *entry, p *part) bool {
	if r.err != nil {
		return r.err == sarama.ErrOffsetOutOfRange //nolint:errorlint // a bare code
	}
	return e.check.searching && batchAt(p, e.ask) == nil && r.past <= e.ask
}

// search halves the range of the search.
func (r *result) search(e *entry, p *part) {
	c := *e.check
	r.check = &c
	b := batchAt(p, e.ask)
	switch {
	case r.err != nil && r.err != sarama.ErrOffsetOutOfRange: //nolint:errorlint // a bare code
		return
	case b == nil: // the range has no batch to compare
		r.err, c.low = nil, c.high
	case b.epoch > e.epoch:
		c.high = min(e.ask, b.first)
	default:
		c.low = b.last + 1
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
func batchAt(p *part, offset int64) *recordBatch {
	for i := range p.batches {
		if b := &p.batches[i]; b.last >= offset {
			return b
		}
	}
	return nil
}
