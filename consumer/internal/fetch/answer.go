package fetch

import (
	"cmp"
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
	got      []stretch // what waits to be handed out
	next     int64     // the position after got; the position asked for if no offset was passed
	unknown  bool      // the leader epoch before got is not known, contrary to what the request said
	end      int64     // the high watermark
	stable   int64     // the last stable offset
	follower int32     // the follower that the leader names for fetching (KIP-392); -1 for none
	check    *check    // the next step of the comparison; nil when it is done
	accepted bool      // Kafka has the position, though the comparison is not done
	past     int64     // the offset up to which the answer shows that the log has no records; 0 if it does not
	passed   bool      // the comparison is left out, because Kafka does not have the batch to compare; other fields are not set
	diverges int64     // the first offset at which the log differs from the messages read; -1 if it does not, as far as known
	first    int64     // the first offset of the answer, for an entry that probes
}

// stretch is a part of the log that waits to be handed out: a record batch as it came, and offsets without messages behind it.
type stretch struct {
	recordBatch // its records are nil for no messages

	next            int64 // the position after it
	leaderEpoch     int32 // the leader epoch of the last record batch before next
	leaderEpochFrom int64 // the offset of the first record batch from which on all have leaderEpoch
	unknown         bool  // the leader epoch before it is not known
	bytes           int   // of memory
}

// stretchOverhead is how many bytes a record batch that waits takes beside its records.
const stretchOverhead = 192

func (s *stretch) isEmpty() bool { return s.records == nil }

// extend adds offsets up to next, which have no messages. The record batches from offset from on have leaderEpoch.
func (s *stretch) extend(next, from int64, leaderEpoch int32) {
	s.next = max(s.next, next)
	if leaderEpoch != s.leaderEpoch {
		s.leaderEpoch, s.leaderEpochFrom = leaderEpoch, from
	}
}

// parse reads the partition's part of an answer. It holds no lock.
func (e *entry) parse(a *answer, s *settings) result {
	r := result{next: e.position, follower: -1, check: e.check, diverges: -1}
	if a.code != sarama.ErrNoError {
		r.err = a.code
		return r
	}
	p := a.parts[e.p.key]
	switch {
	case p == nil && a.throttle > 0:
		r.err = fmt.Errorf("%w: throttled for %v", errQuota, a.throttle)
		return r
	case p == nil:
		r.err = errIncomplete
		return r
	}
	r.end, r.stable, r.follower = p.end, p.stable, p.follower
	spoilt := p.split()
	r.past = p.passed()
	switch {
	case p.code != sarama.ErrNoError:
		r.err = p.code
	case spoilt != nil && len(p.batches) == 0: // else what is before it is handed out first
		r.err = &decodingError{spoilt}
		return r
	}
	if e.check != nil && r.compare(e, p) {
		return r
	}
	switch {
	case e.probes && (r.err == nil || r.err == sarama.ErrOffsetOutOfRange): //nolint:errorlint // a bare code
		if r.err, r.first = nil, e.ask; len(p.batches) > 0 {
			r.first = p.batches[0].first
		}
	case r.err == nil:
		r.err = r.read(e, p, s)
	}
	return r
}

// read finds the record batches that the isolation level does not hide.
func (r *result) read(e *entry, p *part, s *settings) error {
	hidden := hiding(p, s)
	for i := range p.batches {
		b := &p.batches[i]
		if b.partial {
			break
		}
		hides, err := hidden.hides(b)
		if err != nil && len(r.got) == 0 {
			return &decodingError{err}
		} else if err != nil {
			break
		}
		r.add(b, hides || b.count == 0)
	}
	if len(r.got) == 0 && r.past > r.next {
		r.got = append(r.got, stretch{next: r.past, leaderEpoch: e.epoch, leaderEpochFrom: e.position})
		r.next = r.past
	}
	if len(r.got) > 0 {
		r.got[0].unknown = r.unknown
	}
	return nil
}

// add adds a record batch, or only its offsets.
func (r *result) add(b *recordBatch, hidden bool) {
	if b.last < r.next {
		return
	}
	r.next = b.last + 1
	if last := len(r.got) - 1; hidden && last >= 0 {
		r.got[last].extend(r.next, b.first, b.epoch)
		return
	}
	s := stretch{next: r.next, leaderEpoch: b.epoch, leaderEpochFrom: b.first, bytes: stretchOverhead}
	if !hidden {
		s.recordBatch, s.bytes = *b, len(b.records)+stretchOverhead
	}
	r.got = append(r.got, s)
}

// passed returns the offset up to which an answer without records shows that the log has none: the offset after batches that
// compaction has emptied, or the start of a batch that came in part. It is 0 when the answer has no batch, or begins with
// records.
func (p *part) passed() int64 {
	past := int64(0)
	for i := range p.batches {
		switch b := &p.batches[i]; {
		case b.partial:
			return b.first
		case b.count > 0:
			return past
		default:
			past = b.last + 1
		}
	}
	return past
}

// hidden finds the record batches of one answer that readers must not see: control batches, and for READ_COMMITTED those of
// aborted transactions (KIP-98).
type hidden struct {
	aborted   []sarama.AbortedTransaction // the aborted transactions that begin later, by first offset
	producers map[int64]bool              // the producers whose current transaction was aborted
}

// hiding returns the hidden batches of an answer.
func hiding(p *part, s *settings) *hidden {
	h := &hidden{}
	if s.committed() && len(p.aborted) > 0 {
		h.aborted, h.producers = p.aborted, map[int64]bool{}
		slices.SortFunc(h.aborted, func(a, b sarama.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	}
	return h
}

// hides returns whether a batch is hidden. It must be called for each batch of the answer, in order. The error is that of a
// control batch that can't be read.
func (h *hidden) hides(b *recordBatch) (bool, error) {
	for len(h.aborted) > 0 && h.aborted[0].FirstOffset <= b.last {
		h.producers[h.aborted[0].ProducerID] = true
		h.aborted = h.aborted[1:]
	}
	if !b.is(control) {
		return b.is(transactional) && h.producers[b.producer], nil
	}
	if len(h.producers) == 0 || b.count == 0 {
		return true, nil // what the batch ends does not matter, or compaction has emptied it
	}
	aborts, err := b.aborts()
	if aborts {
		delete(h.producers, b.producer)
	}
	return true, err
}

// aborts returns whether a control batch ends a transaction that was aborted. The key of a control record is its version and its
// type; the type of an abort is 0 (KIP-98). Brokers write control batches, and do not compress them.
func (b *recordBatch) aborts() (bool, error) {
	_, i := varint(b.records, 0)  // the length
	_, i = varint(b.records, i+1) // the timestamp, behind the attributes
	_, i = varint(b.records, i)   // the offset
	key, _ := span(b.records, i)
	if len(key) < 4 || b.codec() != sarama.CompressionNone {
		return false, b.spoilt("no control record")
	}
	return binary.BigEndian.Uint16(key[2:]) == 0, nil
}

// apply updates the partition with the result of its entry. received is the number of bytes of the answer. The fetcher's mu is
// held.
func (p *Partition) apply(e *entry, r *result, received int64, now time.Time) {
	switch {
	case r.err != nil:
		p.refused(e, r.err, now)
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
		delete(p.of.unreadable, p.key) // the log is not the one that had it
		p.fail(cut)
		return
	}
	if awaited := e.check != nil && p.hunt != nil; p.check == nil && !awaited || r.accepted { // awaited: the batch at the position comes next
		p.decide()
	}
	moved, missing := r.next > p.position, p.readable() > e.ask && !p.check.searches()
	p.quiet = !moved && !missing
	switch {
	case moved && p.hunt != nil && p.endsAgain(&r.got[0].recordBatch):
		return
	case moved:
		p.push(r.got)
		if p.share() < e.share {
			p.trim()
		}
		known := p.known()
		p.alone, p.size = known != nil && known.First >= p.position, 0
	case p.check.searches():
		p.alone = true
	case missing && e.alone && (p.size >= maxFetch || p.hunt != nil && e.check == nil):
		p.hunt = nil
		p.retry(errNoProgress)
		return
	case missing:
		// There are messages that did not come: a record batch is larger than the size asked for. Kafka sends one batch whole if
		// it is the first in an answer (KIP-74).
		p.alone, p.size = true, int(min(2*int64(p.fetchSize()), maxFetch)) // an int may have 32 bits
	default:
		p.alone, p.size = false, 0
	}
	if p.hunt != nil && e.check == nil {
		if p.hunt.within -= int(received); p.hunt.within <= 0 || !moved {
			p.hunt = nil // what could not be decoded can be now
		}
	}
	p.works(moved)
}

// works ends the partition's back-off, and its errors in the log: not the one about a batch that can't be read until reading has
// passed that batch, since the messages before it come again at each attempt. moved says that the answer has raised the position.
func (p *Partition) works(moved bool) {
	p.failing, p.hungry, p.backoff = time.Time{}, time.Time{}, 0
	if !p.of.maySomethingFail() {
		return
	}
	if p.known() == nil {
		p.of.works(kindFetch, p.String())
	}
	if moved {
		p.of.works(kindStall, p.String())
	}
}

// push appends what has come to the queue. What has no messages is added to what waits before it.
func (p *Partition) push(got []stretch) {
	for i := range got {
		s := &got[i]
		p.position, p.epoch = s.next, s.leaderEpoch
		if last := len(p.queue) - 1; s.isEmpty() && last >= 0 {
			if s.unknown {
				p.queue[last].extend(s.next, s.leaderEpochFrom, -1)
			}
			p.queue[last].extend(s.next, s.leaderEpochFrom, s.leaderEpoch)
			continue
		}
		p.queue = append(p.queue, *s)
		p.buffered += s.bytes
	}
	p.signal()
}

// refused handles an error code of Kafka, or a record batch that can't be read.
func (p *Partition) refused(e *entry, err error, now time.Time) {
	switch {
	case errors.Is(err, errQuota):
		p.starved(err, now)
		return
	case isDecoding(err):
		p.countFailure(err)
		p.spoilt(e, err)
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
