package fetch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/operr"
)

const (
	// slack is by how many bytes an answer may exceed the size that was asked for, beside a quarter of it, because of its header and
	// of what TLS adds.
	slack = 16 << 10
	// maxSteps bounds the steps in which the offset behind a batch is searched. Each doubles the distance to the batch's start, and a
	// batch has at most 1<<31 offsets.
	maxSteps = 32
	// tooLargeAgain is how often an answer is asked for anew that was too large. Nothing changes that but the program, and the broker
	// sends some megabytes of the answer until the connection is closed.
	tooLargeAgain = time.Minute
)

// An UnreadableError names a record batch that can't be read: it is not as it should be, it is larger than Options.MaxBatchBytes when
// it is decompressed, or an answer with it is larger than sarama.MaxResponseSize. It wraps [ErrUnreadable].
type UnreadableError struct {
	Topic     string
	Partition int32
	First     int64 // the first offset that can't be read
	Next      int64 // the first offset behind the batch, where another such batch may be, or the end of the log
	Size      int   // the bytes of the answer if it is too large, else 0
	Limit     int32 // sarama.MaxResponseSize when the answer was too large

	cause  error     // why it can't be read
	at     time.Time // when Kafka was last asked for the batch
	leader Node      // the broker that has sent it
	epoch  int32     // that leader's epoch
}

// Error names the partition and both offsets, and says what to do.
func (e *UnreadableError) Error() string { return e.Operation().Error() }

// Operation is for operr.
func (e *UnreadableError) Operation() *operr.Error {
	why := fmt.Sprintf("%v: %v: let another replica lead, or go on at %d: %s", ErrUnreadable, e.cause, e.Next, runbook)
	switch {
	case errors.Is(e.cause, errTooLarge):
		why = fmt.Sprintf("%v: %v: set that to more, or go on at %d: %s", ErrUnreadable, e.cause, e.Next, runbook)
	case e.Size > 0:
		why = fmt.Sprintf("%v: the answer has %d bytes, and sarama.MaxResponseSize is %d: set that variable to more, or go on at %d: %s",
			ErrUnreadable, e.Size, e.Limit, e.Next, runbook)
	}
	return reading(e.Topic, e.Partition, e.First, why)
}

// runbook says what to do about a batch that can't be read.
const runbook = `docs/operating.md, "A batch that can't be read"`

// Unwrap returns [ErrUnreadable] and why.
func (e *UnreadableError) Unwrap() []error { return []error{ErrUnreadable, e.cause} }

// hunt is the search for a record batch that can't be read. If a whole answer can't be decoded, the partition is fetched alone, with
// fewer and fewer bytes: a broker ends an answer at the size that was asked for, and sends one batch whole at least (KIP-74). In this
// way the messages before the batch are handed out. When the batch is the next one, the first offset behind it is searched, to which
// somebody may have the group go. Its header may be spoilt, too, so requests for offsets behind it say where the next one begins. The
// search must not take a later batch that can't be read for this one: there may be good ones between. The fetcher's mu guards a hunt.
type hunt struct {
	within int   // the batch begins within so many bytes from the position
	found  bool  // the position is in the batch
	cause  error // why the batch can't be read
	size   int   // the bytes of the answer with the batch, if they are too many; else 0

	// The fields below are for the search behind the batch.
	bytes int   // the bytes of the batch, or of the answer with it
	low   int64 // the last offset that is known to be in the batch
	high  int64 // one above low that is not; -1 as long as none is known
	steps int   // how many offsets were tried that are in the batch
}

// isOf returns whether the answer that could not be decoded has the batch of this hunt, and not a later one. The text has both
// checksums if they differ, the one in the batch and the one computed. Other texts say less, so then the sizes must be equal, too.
func (h *hunt) isOf(err error, size int) bool {
	text := err.Error()
	return text == h.cause.Error() && (size == h.bytes || strings.Contains(text, "CRC"))
}

// ask returns the offset to fetch next, and the number of bytes.
func (h *hunt) ask(position int64) (offset int64, size int) {
	switch {
	case !h.found:
		return position, max(h.within/2, 1)
	case h.high < 0:
		return position + 1<<h.steps, 1
	default:
		return h.low + (h.high-h.low)/2, 1
	}
}

// undecodable acts on an answer to a request for the partition alone that could not be decoded. received is the number of its bytes.
func (p *Partition) undecodable(e *entry, err error, received int64) {
	tooLarge := sizeTooLarge(err)
	size := max(int(received), tooLarge)
	single := e.size == 1 || size > e.size+e.size/4+slack // the answer has no more than one batch
	if e.check != nil {
		p.countFailure(err)
		p.checkLess(e)
		return
	}
	p.cantRead(e, err, size, tooLarge, single)
}

// spoilt acts on an answer that begins with a record batch that can't be read.
func (p *Partition) spoilt(e *entry, err error) {
	if e.check != nil { // there is nothing to compare
		p.countFailure(err)
		p.check = nil
		return
	}
	bad, ok := errors.AsType[*spoiltError](err)
	if !ok {
		bad = &spoiltError{}
	}
	if bad.next > p.position && !e.probes && !e.follower { // the header says what is behind the batch: a search could take an equal one for it
		p.countFailure(err)
		p.giveUp(&UnreadableError{First: p.position, Next: bad.next, cause: err})
		return
	}
	p.cantRead(e, err, bad.size, 0, true)
}

// cantRead acts on size bytes that could not be read. single says that they are no more than one batch; tooLarge is their number if
// that is why.
func (p *Partition) cantRead(e *entry, err error, size, tooLarge int, single bool) {
	p.countFailure(err)
	switch h := p.hunt; {
	case h != nil && h.found:
		if h.isOf(err, size) {
			h.low = e.ask
			h.steps++
		} else {
			h.high = e.ask
		}
		p.hunted()
	case e.follower: // the leader may have the batch as it was
		p.hunt, p.follower = &hunt{within: min(e.size, size)}, -1
		p.look()
	case single:
		p.hunt = &hunt{found: true, cause: err, size: tooLarge, bytes: size, low: p.position, high: -1}
		p.hunted()
	default:
		p.hunt = &hunt{within: min(e.size, size)}
	}
}

// checkLess has the comparison with the leader's log ask for one batch alone, because the answer can't be decoded. If that batch is
// the one that can't be, there is nothing to compare.
func (p *Partition) checkLess(e *entry) {
	p.alone = true
	if e.size == 1 {
		p.check = nil
		return
	}
	c := *e.check
	c.least = true
	p.check = &c
}

// hunted ends the hunt when the offset behind the batch is known, or can't be found.
func (p *Partition) hunted() {
	h, known := p.hunt, p.of.unreadable[key{p.topic, p.id}]
	switch {
	case known != nil && known.First == p.position && known.isOf(p):
		p.give(known.Next)
	case h.high == h.low+1:
		p.give(h.high)
	case h.high < 0 && h.steps >= maxSteps: // no answer can be decoded, so no batch is to blame
		p.hunt = nil
		p.retry(h.cause)
	}
}

// isOf returns whether the batch that the partition's hunt has found is this one. Another leader's copy may be spoilt elsewhere.
func (e *UnreadableError) isOf(p *Partition) bool {
	return e.leader == p.node.at && e.epoch == p.leaderEpoch && e.cause.Error() == p.hunt.cause.Error()
}

// give ends reading at the batch that can't be read. next is the offset behind it.
func (p *Partition) give(next int64) {
	h := p.hunt
	p.giveUp(&UnreadableError{First: p.position, Next: next, Size: h.size, Limit: sarama.MaxResponseSize, cause: h.cause})
}

// giveUp ends reading at a batch that can't be read, and drops what waits behind it.
func (p *Partition) giveUp(e *UnreadableError) {
	e.Topic, e.Partition, e.at, e.epoch = p.topic, p.id, time.Now(), p.leaderEpoch
	if p.node != nil {
		e.leader = p.node.at
	}
	p.of.unreadable[key{p.topic, p.id}] = e
	p.hunt = nil
	p.fail(e)
}

// spoiltInHand ends reading at the batch that Next has begun to hand out, and returns the error of Next. Kafka's checksum of the batch
// is right, and so is its header.
func (p *Partition) spoiltInHand(at int64, err error) error {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.closed && p.seen == p.seeks {
		p.queue, p.buffered = nil, 0
		p.countFailure(err)
		p.giveUp(&UnreadableError{First: at, Next: p.hand.last + 1, cause: err})
	}
	return p.err
}

// expect prepares for a batch that could not be read when the partition was open before: it is fetched alone, and with no more than
// is needed to see whether it still can't be.
func (p *Partition) expect() {
	known := p.of.unreadable[key{p.topic, p.id}]
	if known == nil || known.First < p.position {
		return
	}
	switch {
	case known.First > p.position:
		p.alone = true
	case known.isTooLarge() && time.Since(known.at) < tooLargeAgain:
		p.fail(known)
	default:
		p.hunt = &hunt{within: 1}
	}
}

// isTooLarge returns whether the batch is larger than a limit of the program that has not changed.
func (e *UnreadableError) isTooLarge() bool {
	return e.Size > 0 && e.Limit == sarama.MaxResponseSize || errors.Is(e.cause, errTooLarge)
}

// probed acts on an answer to the search behind the batch that could be decoded.
func (p *Partition) probed(e *entry, first int64) {
	h := p.hunt
	if h.high = e.ask; h.low < first && first < e.ask {
		h.high = first
	}
	p.hunted()
}

// went acts on an answer that was decoded during a hunt. moved says that it has raised the position.
func (p *Partition) went(received int64, moved bool) {
	if p.hunt.within -= int(received); p.hunt.within <= 0 || !moved {
		p.hunt = nil // what could not be decoded can be now
	}
}

// isBeforeUnreadable returns whether a batch that could not be read is still to be fetched.
func (p *Partition) isBeforeUnreadable() bool {
	known := p.known()
	return known != nil && known.First >= p.position
}

// known returns the batch that could not be read; nil if there is none. It forgets the batch when what is behind it was handed out,
// and when the log ends before it, as that of a topic that was made anew does.
func (p *Partition) known() *UnreadableError {
	if len(p.of.unreadable) == 0 {
		return nil
	}
	k := key{p.topic, p.id}
	known := p.of.unreadable[k]
	if known != nil && (known.First < p.handed || known.First >= p.end) {
		delete(p.of.unreadable, k)
		return nil
	}
	return known
}

// forgetUnreadable forgets the batch that could not be read, because the log is not the one that had it.
func (p *Partition) forgetUnreadable() { delete(p.of.unreadable, key{p.topic, p.id}) }

// sizeTooLarge returns the size of an answer that sarama has not read because it is larger than sarama.MaxResponseSize; 0 if err
// says something else. sarama has the size in the text alone.
func sizeTooLarge(err error) int {
	var size int
	packet, ok := errors.AsType[sarama.PacketDecodingError](err)
	if !ok {
		return 0
	}
	if _, err := fmt.Sscanf(packet.Info, "message of length %d too large", &size); err != nil || size <= int(sarama.MaxResponseSize) {
		return 0
	}
	return size
}
