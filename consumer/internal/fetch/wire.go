package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// answer is an answer to a fetch request.
type answer struct {
	throttle time.Duration
	code     sarama.KError
	parts    map[key]*part
}

// part is one partition's part of an answer. Its records point into memory that the next answer is read into; those of its
// batches do not.
type part struct {
	code        sarama.KError
	end, stable int64 // the high watermark and the last stable offset
	start       int64 // the offset of the first message
	aborted     []sarama.AbortedTransaction
	follower    int32 // the follower that the leader names (KIP-392); -1 for none
	records     []byte

	batches []recordBatch // what records has
}

// errShort says that an answer ends too early, or too late.
var errShort = errors.New("its lengths do not fit")

// readAnswer reads an answer of versions 5 to 12, behind its correlation id. An element of an array takes some bytes at least, so
// what is allocated has the order of size of the answer, whatever that claims.
func readAnswer(kept *keptAnswer) (*answer, error) {
	version := kept.version
	r := reader{rest: kept.body, flexible: version >= flexibleFrom}
	r.tags() // of the header
	a := &answer{throttle: time.Duration(max(r.int32(), 0)) * time.Millisecond, parts: map[key]*part{}}
	if version >= 7 {
		a.code = sarama.KError(r.int16())
		r.int32() // the session
	}
	for range r.count(3) {
		topic := string(r.take(r.length(false)))
		parts := make([]part, r.count(37))
		for i := range parts {
			k, p := key{topic, r.int32()}, &parts[i]
			p.read(&r, version)
			a.parts[k] = p
		}
		r.tags()
	}
	r.tags()
	if r.bad || len(r.rest) > 0 {
		return nil, fmt.Errorf("answer of version %d: %w", version, errShort)
	}
	return a, nil
}

// read reads the part of a partition behind its number.
func (p *part) read(r *reader, version int16) {
	p.code, p.end, p.stable, p.start, p.follower = sarama.KError(r.int16()), r.int64(), r.int64(), r.int64(), -1
	if n := r.count(16); n > 0 {
		p.aborted = make([]sarama.AbortedTransaction, n)
		for i := range p.aborted {
			p.aborted[i] = sarama.AbortedTransaction{ProducerID: r.int64(), FirstOffset: r.int64()}
			r.tags()
		}
	}
	if version >= 11 {
		p.follower = r.int32()
	}
	p.records = r.block()
	r.tags()
}

// reader reads the parts of an answer. Behind the end of the bytes it reads zeros, and is bad.
type reader struct {
	rest     []byte
	flexible bool // lengths are varints, and tags follow (KIP-482)
	bad      bool
}

// take reads n bytes. If there are not so many, it returns 8 zeros, which are enough for any number.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return make([]byte, 8)
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v >= 1<<31 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

// length reads a length; -1 is that of null. long says that it has 4 bytes where lengths are no varints.
func (r *reader) length(long bool) int {
	switch {
	case r.flexible:
		return r.uvarint() - 1
	case long:
		return int(r.int32())
	default:
		return int(r.int16())
	}
}

// count reads the length of an array whose elements take so many bytes at least.
func (r *reader) count(least int) int {
	n := r.length(true)
	if n < -1 || n > len(r.rest)/least {
		r.bad, r.rest = true, nil
		return 0
	}
	return max(n, 0)
}

// block reads bytes that may be null.
func (r *reader) block() []byte {
	n := r.length(true)
	if n == -1 {
		return nil
	}
	return r.take(n)
}

// tags skips tagged fields.
func (r *reader) tags() {
	if !r.flexible {
		return
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		r.uvarint()
		r.take(r.uvarint())
	}
}
