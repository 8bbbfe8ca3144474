package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/IBM/sarama"
)

// Before record batches there were messages of the formats 0 and 1. A message may be compressed: its value is a message set then.
// Here a run of messages that are not compressed, or one that is, takes the place of a record batch.

// oldHeader is how many bytes the smallest message of format 0 has.
const oldHeader = 26

// errSet says that a compressed message does not have what it should have.
var errSet = errors.New("its value is no message set")

// oldMessage is a message of format 0 or 1.
type oldMessage struct {
	offset     int64
	format     byte
	attributes int16 // the bits that a record batch has, too
	timestamp  int64 // in ms; below 0 for none
	key, value []byte
	size       int // of all its bytes; 0 if they did not come as a whole
}

func (m *oldMessage) isCompressed() bool { return m.attributes&codecMask != 0 }

// readOld reads the first message of a message set.
func readOld(raw []byte) (m oldMessage, err error) {
	if len(raw) <= 16 {
		return m, nil
	}
	length := int64(binary.BigEndian.Uint32(raw[8:])) + 12
	switch m.size = int(min(length, math.MaxInt32)); {
	case length < oldHeader || length > math.MaxInt32:
		return m, fmt.Errorf("%w message: length", errCorrupt)
	case m.size > len(raw):
		return oldMessage{}, nil
	}
	m.offset, m.format, m.timestamp = int64(binary.BigEndian.Uint64(raw)), raw[16], -1
	if want, got := binary.BigEndian.Uint32(raw[12:]), crc32.ChecksumIEEE(raw[16:m.size]); want != got {
		return m, wrongChecksum(want, got)
	}
	m.attributes = int16(raw[17] & codecMask)
	r := reader{rest: raw[18:m.size:m.size]}
	if m.format > 0 {
		m.attributes, m.timestamp = int16(raw[17]&(codecMask|logAppendTime)), r.int64()
	}
	m.key, m.value = r.block(), r.block()
	if r.bad || len(r.rest) > 0 || m.format > 1 || m.offset < 0 || m.offset > maxOffset || m.isCompressed() && len(m.value) == 0 {
		return m, fmt.Errorf("%w message of %d bytes, offset %d", errCorrupt, m.size, m.offset)
	}
	return m, nil
}

// splitOld adds the run of messages at the beginning of raw, or the compressed message there, and returns the number of its bytes. That is
// 0 if the first message did not come as a whole.
func (p *part) splitOld(raw []byte) (size int, err error) {
	run := recordBatch{epoch: -1, producer: -1, old: true}
	for len(raw)-size > 16 && raw[size+16] < 2 {
		m, err := readOld(raw[size:])
		if err != nil && size == 0 {
			return 0, (&recordBatch{size: m.size}).because(err)
		}
		if err != nil || m.size == 0 || size > 0 && (m.isCompressed() || m.offset <= run.last) {
			break
		}
		if size == 0 {
			run.first, run.firstTime = m.offset, m.timestamp
		}
		run.last, run.maxTime, size = m.offset, m.timestamp, size+m.size
		run.count++
		if m.isCompressed() { // its offset is that of the last message in it
			run.first, run.attributes, run.records = 0, m.attributes, m.value
			break
		}
	}
	if size > 0 {
		if run.size = size; run.records == nil {
			run.records = raw[:size:size]
		}
		p.batches = append(p.batches, run)
	}
	return size, nil
}

// openOld prepares for the first message.
func (u *unpacked) openOld() error {
	var m oldMessage
	u.left = 0
	for pos := 0; pos < len(u.raw); pos += m.size {
		var err error
		if m, err = readOld(u.raw[pos:]); err == nil && (m.size == 0 || m.isCompressed()) {
			err = errSet
		}
		if err != nil {
			return u.spoilt("%v", err)
		}
		u.left++
	}
	// Offsets in a compressed message of format 1 count from its first message (KIP-31).
	u.shift = u.last - m.offset
	return nil
}

// decodeOld is decode for messages of the formats before record batches.
func (u *unpacked) decodeOld(out *Batch, p *Partition, limit int) error {
	inside := u.codec() != sarama.CompressionNone
	for ; u.left > 0 && len(out.Messages) < cap(out.Messages) && out.size < limit; u.left-- {
		m, err := readOld(u.raw[u.pos:])
		offset, timestamp, block := m.offset, m.timestamp, m.timestamp
		if inside {
			if block = u.maxTime; m.format > 0 {
				offset += u.shift
			}
			if u.is(logAppendTime) {
				timestamp = block
			}
		}
		if err != nil || offset > u.last {
			return u.ends(out, out.Messages)
		}
		u.pos += m.size
		if offset < out.Next {
			continue
		}
		out.Next = offset + 1
		out.Messages = append(out.Messages, sarama.ConsumerMessage{
			Topic: p.topic, Partition: p.id, Offset: offset, Timestamp: timeOf(timestamp), BlockTimestamp: timeOf(block), Key: m.key, Value: m.value,
		})
		out.size += messageOverhead + len(m.key) + len(m.value)
	}
	if u.left == 0 {
		u.raw = nil
	}
	return nil
}
