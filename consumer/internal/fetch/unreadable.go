package fetch

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/operr"
)

const (
	// slack is by how many bytes an answer may exceed the size that was asked for, beside a quarter of it, because of its header
	// and of what TLS adds.
	slack = 16 << 10
	// maxSteps bounds the steps in which the offset behind a batch is searched. Each doubles the distance to the batch's start,
	// and a batch has at most 1<<31 offsets.
	maxSteps = 32
	// tooLargeAgain is how often an answer is asked for anew that was too large. Nothing changes that but the program, and the
	// broker sends some megabytes of the answer until the connection is closed.
	tooLargeAgain = time.Minute
)

// An UnreadableError names a record batch that can't be read: it is not as it should be, it is larger than Options.MaxBatchBytes
// when it is decompressed, or an answer with it is larger than sarama.MaxResponseSize. It wraps [ErrUnreadable].
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

	bytes    int    // the bytes of a batch that is wrong inside, else 0
	checksum uint32 // that batch's, which is right
}

// Error names the partition and both offsets, and says what to do.
func (e *UnreadableError) Error() string { return e.Operation().Error() }

// Operation is for operr.
func (e *UnreadableError) Operation() *operr.Error {
	why, advice := e.cause.Error(), "let another replica lead"
	switch {
	case errors.Is(e.cause, errTooLarge):
		advice = "set that to more"
	case e.Size > 0:
		why = fmt.Sprintf("the answer has %d bytes, and sarama.MaxResponseSize is %d", e.Size, e.Limit)
		advice = "set that variable to more"
	}
	return reading(e.Topic, e.Partition, e.First, fmt.Sprintf(`%v: %s: %s, or go on at %d: docs/operating.md, "A batch that can't be read"`,
		ErrUnreadable, why, advice, e.Next))
}

// Unwrap returns [ErrUnreadable] and why.
func (e *UnreadableError) Unwrap() []error { return []error{ErrUnreadable, e.cause} }

// hunt is the search for a record batch that can't be read. If a whole answer can't be decoded, the partition is fetched alone,
// with fewer and fewer bytes: a broker ends an answer at the size that was asked for, and sends one batch whole at least
// (KIP-74). In this way the messages before the batch are handed out. When the batch is the next one, the first offset behind it
// is searched, to which somebody may have the group go. Its header may be spoilt, too, so requests for offsets behind it say
// where the next one begins. The search must not take a later batch that can't be read for this one: there may be good ones
// between. The fetcher's mu guards a hunt.
type hunt struct {
	within int   // the batch begins within so many bytes from the position
	found  bool  // the position is in the batch
	cause  error // why the batch can't be read
	size   int   // the bytes of the answer with the batch, if they are too many; else 0

	// The fields below are for the search behind the batch.
	low   int64 // the last offset that is known to be in the batch
	high  int64 // one above low that is not; -1 as long as none is known
	steps int   // how many offsets were tried that are in the batch
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

// undecodable acts on an answer to a request for the partition alone that could not be decoded. received is the number of its
// bytes.
func (p *Partition) undecodable(e *entry, err error, received int64) {
	switch {
	case e.check != nil && e.size == 1: // the batch to compare is the one that can't be decoded
		p.check = nil
	case e.check != nil:
		c := *e.check
		c.least = true
		p.check = &c
	default:
		tooLarge := sizeTooLarge(err)
		size := max(int(received), tooLarge)
		p.cantRead(e, err, size, tooLarge, e.size == 1 || size > e.size+e.size/4+slack) // then the answer has no more than one batch
	}
}

// spoilt acts on an answer that begins with a record batch that can't be read.
func (p *Partition) spoilt(e *entry, err error) {
	bad, _ := errors.AsType[*spoiltError](err)
	switch {
	case e.check != nil: // there is nothing to compare
		p.check = nil
	case bad.next > p.position && !e.probes && !e.follower: // the header says what is behind: a search could take an equal batch for it
		p.giveUp(&UnreadableError{First: p.position, Next: bad.next, cause: err})
	default:
		p.cantRead(e, err, bad.size, 0, true)
	}
}

// cantRead acts on size bytes that could not be read. single says that they are no more than one batch; tooLarge is their number
// if that is why.
func (p *Partition) cantRead(e *entry, err error, size, tooLarge int, single bool) {
	switch h := p.hunt; {
	case h != nil && h.found:
		if err.Error() == h.cause.Error() { // it is this batch, and not a later one: the text has its size, or its checksums
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
		p.hunt = &hunt{found: true, cause: err, size: tooLarge, low: p.position, high: -1}
		p.hunted()
	default:
		p.hunt = &hunt{within: min(e.size, size)}
	}
}

// hunted ends the hunt when the offset behind the batch is known, or can't be found.
func (p *Partition) hunted() {
	h, known := p.hunt, p.of.unreadable[p.key]
	next := h.high
	switch {
	case known != nil && known.First == p.position && known.isOf(p):
		next = known.Next
	case h.high == h.low+1:
	case h.high < 0 && h.steps >= maxSteps: // no answer can be decoded, so no batch is to blame
		p.hunt = nil
		p.retry(h.cause)
		return
	default:
		return
	}
	p.giveUp(&UnreadableError{First: p.position, Next: next, Size: h.size, Limit: sarama.MaxResponseSize, cause: h.cause})
}

// isOf returns whether the batch that the partition's hunt has found is this one. Another leader's copy may be spoilt elsewhere.
func (e *UnreadableError) isOf(p *Partition) bool {
	return e.leader == p.node.at && e.epoch == p.leaderEpoch && e.cause.Error() == p.hunt.cause.Error()
}

// giveUp ends reading at a batch that can't be read, and drops what waits behind it.
func (p *Partition) giveUp(e *UnreadableError) {
	e.Topic, e.Partition, e.at, e.epoch = p.topic, p.id, time.Now(), p.leaderEpoch
	if p.node != nil {
		e.leader = p.node.at
	}
	p.of.unreadable[p.key] = e
	p.hunt = nil
	p.fail(e)
}

// spoiltInHand ends reading at the batch that Next has begun to hand out, and returns the error of Next. Kafka's checksum of the
// batch is right, and so is its header.
func (p *Partition) spoiltInHand(at int64, err error) error {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.closed && p.seen == p.seeks {
		p.queue, p.buffered = nil, 0
		p.wrongInside(at, &p.hand.recordBatch, err)
	}
	return p.err
}

// wrongInside ends reading at a batch that can't be read though its checksum is right.
func (p *Partition) wrongInside(at int64, b *recordBatch, err error) {
	e := &UnreadableError{First: at, Next: b.last + 1, cause: err, bytes: b.size, checksum: b.checksum}
	if at > b.last { // behind its last message, which is to be handed out again when the partition is opened there
		e.First, e.bytes = b.last, 0
	}
	p.countFailure(err)
	p.giveUp(e)
}

// endsAgain ends reading at the first record batch of an answer if that is the one at which reading has ended before, and is
// still as it was. It is not decompressed again to see that.
func (p *Partition) endsAgain(b *recordBatch) bool {
	known := p.of.unreadable[p.key]
	if known == nil || known.bytes == 0 || known.First != p.position || known.bytes != b.size || known.checksum != b.checksum {
		return false
	}
	p.wrongInside(p.position, b, known.cause)
	return true
}

// expect prepares for a batch that could not be read when the partition was open before: it is fetched alone, and with no more
// than is needed to see whether it still can't be.
func (p *Partition) expect() {
	known := p.of.unreadable[p.key]
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

// known returns the batch that could not be read; nil if there is none. It forgets the batch when what is behind it was handed
// out, and when the log ends before it, as that of a topic that was made anew does.
func (p *Partition) known() *UnreadableError {
	if len(p.of.unreadable) == 0 {
		return nil
	}
	known := p.of.unreadable[p.key]
	if known != nil && (known.First < p.handed || known.First >= p.end) {
		delete(p.of.unreadable, p.key)
		return nil
	}
	return known
}

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
