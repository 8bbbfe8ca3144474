package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/IBM/sarama"
)

// Before record batches there were messages of the formats 0 and 1. A message may be compressed: its value is a message set then.
// Here they are written anew as records: a run of messages that are not compressed takes the place of a record batch, and so does
// a compressed message, whose messages are written anew when it is decompressed.

// oldHeader is how many bytes the smallest message of format 0 has.
const oldHeader = 26

// errSet says that a compressed message does not have what it should have.
var errSet = errors.New("its value is no message set")

// oldMessage is a message of format 0 or 1. What a record batch has, too, is that of a batch with it alone; size is 0 if the
// message did not come as a whole.
type oldMessage struct {
	recordBatch
	format     byte
	key, value []byte
}

// readOld reads the first message of a message set.
func readOld(raw []byte) (m oldMessage, err error) {
	if len(raw) <= 16 {
		return m, nil
	}
	length := int64(binary.BigEndian.Uint32(raw[8:])) + 12
	switch m.size = int(min(length, math.MaxInt32)); {
	case length < oldHeader || length > math.MaxInt32:
		return m, fmt.Errorf("%w message of %d bytes", errCorrupt, length)
	case m.size > len(raw):
		return oldMessage{}, nil
	}
	m.epoch, m.producer, m.old, m.count, m.format, m.firstTime = -1, -1, true, 1, raw[16], -1
	m.first, m.checksum = int64(binary.BigEndian.Uint64(raw)), binary.BigEndian.Uint32(raw[12:])
	if got := crc32.ChecksumIEEE(raw[16:m.size]); got != m.checksum {
		return m, wrongChecksum(m.checksum, got)
	}
	m.attributes = int16(raw[17] & codecMask)
	r := reader{rest: raw[18:m.size:m.size]}
	if m.format > 0 {
		m.attributes, m.firstTime = int16(raw[17]&(codecMask|logAppendTime)), r.int64()
	}
	m.key, m.value, m.last, m.maxTime = r.block(), r.block(), m.first, m.firstTime
	if r.bad || len(r.rest) > 0 || m.format > 1 || m.first < 0 || m.first > maxOffset || m.isSet() && len(m.value) == 0 {
		return m, fmt.Errorf("%w message of %d bytes, offset %d", errCorrupt, m.size, m.first)
	}
	return m, nil
}

// splitOld adds the run of messages at the beginning of raw, or the compressed message there, and returns the number of its
// bytes. That is 0 if the first message did not come as a whole.
func (p *part) splitOld(raw []byte) (size int, err error) {
	var run recordBatch
	for len(raw)-size > 16 && raw[size+16] < 2 {
		m, err := readOld(raw[size:])
		if err != nil && size == 0 {
			return 0, m.because(err)
		}
		if err != nil || m.size == 0 || size > 0 && (m.isSet() || m.first <= run.last) {
			break
		}
		if size == 0 {
			run, run.count = m.recordBatch, 0
		}
		run.last, run.maxTime, run.count, size = m.last, m.maxTime, run.count+1, size+m.size
		if run.isSet() { // its offset is that of the last message in it
			run.first, run.records = 0, slices.Clone(m.value)
			break
		}
		run.attributes, run.records = 0, run.addOld(run.records, &m)
	}
	if size > 0 {
		run.size = size
		p.batches = append(p.batches, run)
	}
	return size, nil
}

// addOld appends a message to records of b.
func (b *recordBatch) addOld(records []byte, m *oldMessage) []byte {
	record := binary.AppendVarint([]byte{0}, m.firstTime-b.firstTime)
	record = binary.AppendVarint(record, m.first-b.first)
	for _, data := range [][]byte{m.key, m.value} {
		if data == nil {
			record = binary.AppendVarint(record, -1)
			continue
		}
		record = append(binary.AppendVarint(record, int64(len(data))), data...)
	}
	record = append(record, 0) // no headers
	return append(binary.AppendVarint(records, int64(len(record))), record...)
}

// isSet returns whether the batch is a compressed message.
func (b *recordBatch) isSet() bool { return b.old && b.codec() != sarama.CompressionNone }

// readSet reads the messages of a compressed message. raw is its value, decompressed.
func (b *recordBatch) readSet(raw []byte) (records []byte, err error) {
	var m oldMessage
	b.count = 0
	for pos := 0; pos == 0 || pos < len(raw); pos += m.size {
		if m, err = readOld(raw[pos:]); err == nil && (m.size == 0 || m.isSet() || m.format != raw[16]) {
			err = errSet
		}
		if err != nil {
			return nil, b.spoilt("%v", err)
		}
		records = b.addOld(records, &m)
		b.count++
	}
	if m.format > 0 { // offsets count from the first message (KIP-31)
		b.first = b.last - m.first
	}
	return records, nil
}
