package fetch

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"time"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// batch describes a record batch of a fake log.
type batch struct {
	base, last  int64 // last 0: as many offsets as values
	epoch       int32
	producer    int64 // of a transaction, if not 0
	control     bool
	abort       bool // with control
	gzip        bool
	codec       sarama.CompressionCodec // of a record batch, if not gzip
	garbage     bool                    // compressed bytes are none, and the checksum is right
	stamp       int64                   // the timestamp of the first record, in ms, if not 0
	values      []string
	keep        []int64 // the deltas of the values, when compaction has removed others
	brokenBytes bool
	bare        bool // no headers
	legacy      bool // of format 1: messages of their own, or with gzip, messages in a compressed one
}

func (b *batch) end() int64 {
	if b.last > 0 {
		return b.last
	}
	return b.base + int64(max(len(b.values), 1)) - 1
}

// encode returns the batch in format 2, unless it is legacy.
func (b *batch) encode() []byte {
	if b.legacy {
		return b.encodeLegacy()
	}
	codec := b.codec
	if b.gzip {
		codec = sarama.CompressionGZIP
	}
	attributes, producer := int(codec), cmp.Or(b.producer, -1)
	key, values, headers := []byte("k"), b.values, [][]byte{{'h'}, {'x'}}
	if b.bare {
		headers = nil
	}
	if b.producer != 0 {
		attributes |= transactional
	}
	if b.control {
		attributes |= control
		key, values = []byte{0, 0, 0, 1}, []string{""}
	}
	if b.abort {
		key[3] = 0
	}
	var records []byte
	for i, v := range values {
		delta := int64(i)
		if b.keep != nil {
			delta = b.keep[i]
		}
		records = append(records, record(delta, delta, key, []byte(v), headers...)...)
	}
	records = compressed(codec, records)
	if b.garbage {
		records = []byte("this is not compressed")
	}
	stamp := cmp.Or(b.stamp, epochTime.UnixMilli())
	body := batchBody(attributes, b.end()-b.base, stamp, epochTime.Add(time.Hour).UnixMilli(), producer, len(values), records)
	out := withHeader(b.base, b.epoch, body)
	if b.brokenBytes {
		out[crcFrom-1]++
	}
	return out
}

// wire is bytes as Kafka's protocol has them.
type wire []byte

func (w wire) i16(n int) wire { return binary.BigEndian.AppendUint16(w, uint16(n)) }

func (w wire) i32(ns ...int) wire {
	for _, n := range ns {
		w = binary.BigEndian.AppendUint32(w, uint32(n))
	}
	return w
}

func (w wire) i64(ns ...int64) wire {
	for _, n := range ns {
		w = binary.BigEndian.AppendUint64(w, uint64(n))
	}
	return w
}

// varBytes appends bytes with their length; nil is null.
func varBytes(out, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(out, -1)
	}
	return append(binary.AppendVarint(out, int64(len(b))), b...)
}

// record returns a record, with its length. Headers are keys and values in turn.
func record(stamp, delta int64, key, value []byte, headers ...[]byte) []byte {
	r := binary.AppendVarint(binary.AppendVarint([]byte{0}, stamp), delta) // no attributes
	r = binary.AppendVarint(varBytes(varBytes(r, key), value), int64(len(headers)/2))
	for _, h := range headers {
		r = varBytes(r, h)
	}
	return varBytes(nil, r)
}

// batchBody returns a record batch from its attributes on.
func batchBody(attributes int, lastDelta, firstStamp, lastStamp, producer int64, count int, records []byte) []byte {
	return append(wire(nil).i16(attributes).i32(int(lastDelta)).i64(firstStamp, lastStamp, producer).i16(-1).i32(-1, count), records...)
}

// withHeader puts the part of a record batch before it that its checksum is not of.
func withHeader(first int64, epoch int32, body []byte) []byte {
	out := append(wire(nil).i64(first).i32(9+len(body), int(epoch)), 2)
	return append(out.i32(int(checksum(body))), body...)
}

// encodeLegacy returns the values as messages of format 1. Offsets inside of a compressed message count from its start.
func (b *batch) encodeLegacy() []byte {
	first := b.base
	if b.gzip {
		first = 0
	}
	var set []byte
	for i, v := range b.values {
		set = append(set, legacyMessage(1, first+int64(i), 0, epochTime.UnixMilli(), []byte("k"), []byte(v))...)
	}
	if !b.gzip {
		return set
	}
	return legacyMessage(1, b.end(), 1, epochTime.UnixMilli(), nil, zipped(set))
}

func legacyMessage(format byte, offset int64, attributes byte, timestamp int64, key, value []byte) []byte {
	body := wire{format, attributes}
	if format > 0 {
		body = body.i64(timestamp)
	}
	for _, data := range [][]byte{key, value} {
		size := len(data)
		if data == nil {
			size = -1
		}
		body = append(body.i32(size), data...)
	}
	return append(wire(nil).i64(offset).i32(4+len(body), int(crc32.ChecksumIEEE(body))), body...)
}

func checksum(body []byte) uint32 { return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) }

// compressed returns data as producers compress them. That of zstd does not say how large data is.
func compressed(codec sarama.CompressionCodec, data []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	switch codec {
	default:
		return data
	case sarama.CompressionGZIP:
		return zipped(data)
	case sarama.CompressionSnappy:
		return xerial.Encode(nil, data)
	case sarama.CompressionLZ4:
		w = lz4.NewWriter(&out)
	case sarama.CompressionZSTD:
		w, _ = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	}
	w.Write(data)
	w.Close()
	return out.Bytes()
}

func zipped(data []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(data)
	w.Close()
	return z.Bytes()
}
