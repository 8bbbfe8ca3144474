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
	appendTime  bool
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
	var recs bytes.Buffer
	values := b.values
	if b.control {
		values = []string{""}
	}
	for i, v := range values {
		delta := int64(i)
		if b.keep != nil {
			delta = b.keep[i]
		}
		key := []byte("k")
		if b.control {
			key = []byte{0, 0, 0, 1}
			if b.abort {
				key[3] = 0
			}
		}
		var r []byte
		r = append(r, 0)
		r = binary.AppendVarint(r, delta) // the timestamp, in ms
		r = binary.AppendVarint(r, delta)
		r = binary.AppendVarint(r, int64(len(key)))
		r = append(r, key...)
		r = binary.AppendVarint(r, int64(len(v)))
		r = append(r, v...)
		if b.bare {
			r = binary.AppendVarint(r, 0)
		} else {
			r = binary.AppendVarint(r, 1)
			r = binary.AppendVarint(r, 1)
			r = append(r, 'h')
			r = binary.AppendVarint(r, 1)
			r = append(r, 'x')
		}
		recs.Write(binary.AppendVarint(nil, int64(len(r))))
		recs.Write(r)
	}
	attributes := uint16(0)
	payload := recs.Bytes()
	if b.gzip {
		attributes |= 1
		payload = zipped(payload)
	}
	if b.codec != 0 {
		attributes |= uint16(b.codec)
		payload = compressed(b.codec, payload)
	}
	if b.garbage {
		payload = []byte("this is not compressed")
	}
	if b.appendTime {
		attributes |= 8
	}
	producer := int64(-1)
	if b.producer != 0 {
		producer = b.producer
		attributes |= 16
	}
	if b.control {
		attributes |= 32
	}
	var body []byte
	body = binary.BigEndian.AppendUint16(body, attributes)
	body = binary.BigEndian.AppendUint32(body, uint32(b.end()-b.base))
	body = binary.BigEndian.AppendUint64(body, uint64(cmp.Or(b.stamp, epochTime.UnixMilli())))
	body = binary.BigEndian.AppendUint64(body, uint64(epochTime.Add(time.Hour).UnixMilli()))
	body = binary.BigEndian.AppendUint64(body, uint64(producer))
	body = binary.BigEndian.AppendUint16(body, 0)
	body = binary.BigEndian.AppendUint32(body, 0)
	body = binary.BigEndian.AppendUint32(body, uint32(len(values)))
	body = append(body, payload...)
	var out []byte
	out = binary.BigEndian.AppendUint64(out, uint64(b.base))
	out = binary.BigEndian.AppendUint32(out, uint32(4+1+4+len(body)))
	out = binary.BigEndian.AppendUint32(out, uint32(b.epoch))
	out = append(out, 2)
	sum := checksum(body)
	if b.brokenBytes {
		sum++
	}
	out = binary.BigEndian.AppendUint32(out, sum)
	return append(out, body...)
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
	body := []byte{format, attributes}
	if format > 0 {
		body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
	}
	for _, data := range [][]byte{key, value} {
		size := int32(len(data))
		if data == nil {
			size = -1
		}
		body = append(binary.BigEndian.AppendUint32(body, uint32(size)), data...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
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
