package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/IBM/sarama"
)

const (
	batchHeader = 61 // bytes of a record batch before its records
	crcFrom     = 21 // where in a record batch the bytes begin that its checksum is of
	minRecord   = 7  // bytes of the smallest record

	// maxOffset is the largest offset at which a record batch may begin. Those of its records can't overflow.
	maxOffset = math.MaxInt64 - 2*math.MaxInt32

	// The attributes of a record batch.
	codecMask     = 7
	logAppendTime = 1 << 3
	transactional = 1 << 4
	control       = 1 << 5
)

// errCorrupt says that a record batch is not as Kafka's protocol has it.
var errCorrupt = errors.New("malformed")

// recordBatch is a record batch: its header, and its records as they came, compressed or not.
type recordBatch struct {
	first, last        int64 // its offsets
	epoch              int32 // the leader epoch
	count              int32 // of the records
	firstTime, maxTime int64 // timestamps in ms; below 0 for none
	producer           int64
	attributes         int16
	checksum           uint32
	partial            bool   // the records did not come as a whole
	old                bool   // messages of a format before record batches, in place of a batch; of a compressed one first is 0
	records            []byte // in memory of their own, which no other batch shares; nil if partial
	size               int    // bytes of the whole batch
}

func (b *recordBatch) is(attribute int16) bool { return b.attributes&attribute != 0 }

func (b *recordBatch) codec() sarama.CompressionCodec {
	return sarama.CompressionCodec(b.attributes & codecMask)
}

// spoiltError says that a record batch can't be read, but not which: the texts of two equal batches are equal.
type spoiltError struct {
	error
	size int   // bytes of the batch
	next int64 // the offset behind the batch; 0 if its header can't be relied on
}

func (e *spoiltError) Unwrap() error { return e.error }

// spoilt returns the error of a batch that is not as it should be.
func (b *recordBatch) spoilt(format string, args ...any) error {
	return b.because(fmt.Errorf("%w record batch of %d bytes: %s", errCorrupt, b.size, fmt.Sprintf(format, args...)))
}

// because returns the error of a batch that can't be read because of err. split sets records when it has found the checksum
// right.
func (b *recordBatch) because(err error) error {
	e := &spoiltError{error: err, size: b.size}
	if b.records != nil {
		e.next = b.last + 1
	}
	return e
}

// wrongChecksum is as sarama says it.
func wrongChecksum(want, got uint32) error {
	return sarama.PacketDecodingError{Info: fmt.Sprintf("CRC didn't match expected %#x got %#x", want, got)}
}

// split finds the record batches of a partition. The last one may have come in part; its header is enough for some. An error is
// of the first batch that is not in p.batches.
func (p *part) split() error {
	for raw := p.records; len(raw) > 16; {
		format := raw[16]
		if format < 2 {
			size, err := p.splitOld(raw)
			if size == 0 {
				return err
			}
			raw = raw[size:]
			continue
		}
		length := int64(binary.BigEndian.Uint32(raw[8:])) + 12
		b := recordBatch{size: int(min(length, math.MaxInt32))}
		switch {
		case format > 2:
			return b.spoilt("format %d", format)
		case length < batchHeader || length > math.MaxInt32:
			return b.spoilt("length")
		case len(raw) < batchHeader:
			return nil
		}
		b.read(raw)
		if b.partial = b.size > len(raw); b.partial {
			p.batches = append(p.batches, b)
			return nil
		}
		if got := crc32.Checksum(raw[crcFrom:b.size], crc32.MakeTable(crc32.Castagnoli)); got != b.checksum {
			return b.because(wrongChecksum(b.checksum, got))
		}
		if b.first < 0 || b.last < b.first || b.first > maxOffset || b.count < 0 || b.count > 0 && b.size == batchHeader {
			return b.spoilt("%d records, offsets %d to %d", b.count, b.first, b.last)
		}
		b.records = append([]byte(nil), raw[batchHeader:b.size]...) // here, while the cache has the bytes
		raw = raw[b.size:]
		if n := len(p.batches); n > 0 && b.count == 0 && p.batches[n-1].count == 0 && p.batches[n-1].epoch == b.epoch {
			p.batches[n-1].last = max(p.batches[n-1].last, b.last) // batches without records need no more memory than one
			continue
		}
		p.batches = append(p.batches, b)
	}
	return nil
}

// read reads the header of a batch.
func (b *recordBatch) read(raw []byte) {
	i32 := func(at int) int32 { return int32(binary.BigEndian.Uint32(raw[at:])) }
	i64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(raw[at:])) }
	b.first, b.epoch, b.checksum, b.attributes = i64(0), i32(12), uint32(i32(17)), int16(binary.BigEndian.Uint16(raw[21:]))
	b.last, b.firstTime, b.maxTime, b.producer, b.count = b.first+int64(i32(23)), i64(27), i64(35), i64(43), i32(57)
}

// time returns the timestamp of the batch that says most of its first record; below 0 for none.
func (b *recordBatch) time() int64 {
	if b.is(logAppendTime) {
		return b.maxTime
	}
	return b.firstTime
}

// timeOf returns the time of a timestamp in ms; the zero time if it is below 0.
func timeOf(timestamp int64) time.Time {
	if timestamp < 0 {
		return time.Time{}
	}
	return time.UnixMilli(timestamp)
}

// unpacked is what is left of a record batch that is being handed out.
type unpacked struct {
	recordBatch
	raw  []byte    // the records, decompressed; nil when nothing is left
	left int32     // the number of the records
	by   *unpacker // bounds the headers of a record
}

// open decompresses b, and prepares for its first record.
func (u *unpacker) open(b recordBatch) (rest unpacked, err error) {
	raw, err := u.unpack(&b)
	if err == nil && b.isSet() {
		raw, err = b.readSet(raw)
	}
	if err == nil && (b.count < 0 || int(b.count) > len(raw)/minRecord) {
		err = b.spoilt("%d records in %d bytes", b.count, len(raw))
	}
	if err != nil {
		return unpacked{}, err
	}
	return unpacked{recordBatch: b, raw: raw, left: b.count, by: u}, nil
}

// makeRoom gives out room for the records that are left, and for so many that wait behind them, as far as limit allows.
func (u *unpacked) makeRoom(out *Batch, limit, waiting int) {
	if out.Messages == nil {
		each := messageOverhead + len(u.raw)/max(int(u.left), 1)
		out.Messages = make([]sarama.ConsumerMessage, 0, min(int(u.left)+waiting, limit/each+1))
	}
}

// decode appends records as messages, as long as there is room in the capacity of out.Messages and out.size is below limit. It
// leaves out an offset that does not grow, because the readers of the messages rely on their order. Keys, values and headers are
// parts of raw. Their capacity ends with them: a handler that appends to one of them gets a copy.
func (u *unpacked) decode(out *Batch, p *Partition, limit int) error {
	messages, raw, pos := out.Messages, u.raw, 0
	none, appended := []*sarama.RecordHeader{}, u.is(logAppendTime)
	stamp := timeOf(u.maxTime)
	for ; u.left > 0 && len(messages) < cap(messages) && out.size < limit; u.left-- {
		length, from := varint(raw, pos)
		if length < minRecord-1 || length > int64(len(raw)-from) {
			return u.ends(out, messages)
		}
		end := from + int(length)
		rec := raw[:end:end]
		timestamp, i := varint(rec, from+1) // behind the attributes, of which there are none
		delta, i := varint(rec, i)
		key, i := span(rec, i)
		value, i := span(rec, i)
		headers, i := varint(rec, i)
		if i > end || delta < 0 || delta > u.last-u.first || headers < 0 || headers > int64(end-i)/2 {
			return u.ends(out, messages)
		}
		if headers > int64(u.by.limit/headerOverhead) { // two bytes of a batch make a header of 56 in memory
			out.Messages, u.raw = messages, nil
			return u.by.tooLarge(&u.recordBatch)
		}
		list := none
		if headers > 0 {
			list, i = readHeaders(rec, i, int(headers))
		}
		if i != end {
			return u.ends(out, messages)
		}
		pos = end
		offset := u.first + delta
		if offset < out.Next {
			continue
		}
		out.Next = offset + 1
		// In place: appending a literal would copy it once more, and this is the hot path.
		messages = messages[:len(messages)+1]
		m := &messages[len(messages)-1]
		m.Topic, m.Partition, m.Offset, m.Key, m.Value, m.Headers, m.Timestamp = p.topic, p.id, offset, key, value, list, stamp
		if !appended {
			m.Timestamp = timeOf(u.firstTime + timestamp)
		}
		if u.old { // as sarama has it
			m.Headers, m.BlockTimestamp = nil, m.Timestamp
			if u.isSet() {
				m.BlockTimestamp = stamp
			}
		}
		out.size += messageOverhead + int(length) + headerOverhead*int(headers)
	}
	switch out.Messages = messages; {
	case u.left > 0:
		u.raw = raw[pos:]
	case pos != len(raw):
		return u.ends(out, messages)
	default:
		u.raw = nil
	}
	return nil
}

// ends returns the error of records that do not end where they should. The messages before are kept.
func (u *unpacked) ends(out *Batch, messages []sarama.ConsumerMessage) error {
	out.Messages, u.raw = messages, nil
	return u.spoilt("its records do not fit into its %d bytes", u.size)
}

// varint reads a varint at pos, and returns the position behind it. That is behind the end of b if b has no whole one there.
func varint(b []byte, pos int) (v int64, next int) {
	if pos < len(b) && b[pos] < 0x80 {
		return int64(b[pos]>>1) ^ -int64(b[pos]&1), pos + 1
	}
	return longVarint(b, pos)
}

func longVarint(b []byte, pos int) (v int64, next int) {
	if pos < len(b) {
		if v, n := binary.Varint(b[pos:]); n > 0 {
			return v, pos + n
		}
	}
	return 0, len(b) + 1
}

// span reads a length and that many bytes at pos, nil for the length -1, and returns the position behind them. That is behind the
// end of b if b does not have them.
func span(b []byte, pos int) (s []byte, next int) {
	n, pos := varint(b, pos)
	switch {
	case n == -1:
		return nil, pos
	case n < 0 || n > int64(len(b)-pos):
		return nil, len(b) + 1
	}
	next = pos + int(n)
	return b[pos:next:next], next
}

// readHeaders reads n headers at pos, and returns the position behind them. That is behind the end of b if b does not have them.
func readHeaders(b []byte, pos, n int) (list []*sarama.RecordHeader, next int) {
	all, list := make([]sarama.RecordHeader, n), make([]*sarama.RecordHeader, n)
	for i := range all {
		all[i].Key, pos = span(b, pos)
		all[i].Value, pos = span(b, pos)
		list[i] = &all[i]
	}
	return list, pos
}
