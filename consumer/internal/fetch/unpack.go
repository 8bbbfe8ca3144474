package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	// defaultMaxBatch is the default of Options.MaxBatchBytes.
	defaultMaxBatch = 64 << 20
	// maxScratch bounds the memory for decompressed bytes that is kept for the next batch.
	maxScratch = 4 << 20
	// minScratch is the least room for bytes that are decompressed in one step.
	minScratch = 64 << 10
	// zstdBlock is the most that a block of zstd decompresses to.
	zstdBlock = 128 << 10
)

// errTooLarge says that a record batch is larger than the limit when it is decompressed.
var errTooLarge = errors.New("decompresses to more than the limit")

// unpacker decompresses record batches, to no more than limit bytes each. Its methods may be called concurrently.
type unpacker struct {
	limit               int
	option              string // what the limit is from
	scratch, gzip, zstd sync.Pool
}

// newUnpacker returns an unpacker for the smaller of the limits of Options and of sarama, where 0 is no limit.
func newUnpacker(maxBatch int) *unpacker {
	u := &unpacker{limit: maxBatch, option: "Options.MaxBatchBytes"}
	if most := int(sarama.MaxDecompressedBatchSize); most > 0 && most < maxBatch {
		u.limit, u.option = most, "sarama.MaxDecompressedBatchSize"
	}
	u.scratch.New = func() any { return new([]byte) }
	u.gzip.New = func() any { return new(gzip.Reader) }
	u.zstd.New = func() any {
		// No limit but that of memory: it would be one of windows, too, and small batches of level 22 say that theirs is large.
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true)) // options alone make it fail
		return d
	}
	return u
}

// unpack returns the records of a batch. They have memory of their own if they were compressed.
func (u *unpacker) unpack(b *recordBatch) ([]byte, error) {
	switch codec := b.codec(); {
	case codec == sarama.CompressionNone:
		return b.records, nil
	case codec > sarama.CompressionZSTD: // has no String
		return nil, b.spoilt("no such compression: %d", codec)
	}
	memory, _ := u.scratch.Get().(*[]byte)
	raw, err := u.decompress(b, (*memory)[:0])
	var own []byte
	switch {
	case errors.Is(err, errTooLarge):
		err = u.tooLarge(b)
	case err != nil:
		err = b.spoilt("%v: %v", b.codec(), err)
	default:
		own = append([]byte(nil), raw...)
	}
	if cap(raw) <= maxScratch { // one large batch is not to stay in memory
		*memory = raw[:0]
		u.scratch.Put(memory)
	}
	return own, err
}

// tooLarge returns the error of a batch that takes more memory than the limit.
func (u *unpacker) tooLarge(b *recordBatch) error {
	return b.because(fmt.Errorf("record batch of %d bytes %w, %s, which is %d bytes", b.size, errTooLarge, u.option, u.limit))
}

// decompress returns the records of a batch in memory, or in larger memory. That is returned with an error, too.
func (u *unpacker) decompress(b *recordBatch, memory []byte) ([]byte, error) {
	switch b.codec() {
	case sarama.CompressionGZIP:
		z, _ := u.gzip.Get().(*gzip.Reader)
		defer u.gzip.Put(z)
		if err := z.Reset(bytes.NewReader(b.records)); err != nil {
			return memory, err
		}
		return u.readAll(z, memory)
	case sarama.CompressionLZ4:
		// A new one for each batch: one that is reset has what a frame of linked blocks refers to from the batch before.
		return u.readAll(lz4.NewReader(bytes.NewReader(b.records)), memory)
	case sarama.CompressionZSTD:
		d, _ := u.zstd.Get().(*zstd.Decoder)
		out, err := u.grow(memory, func(to []byte) ([]byte, error) { return d.DecodeAll(b.records, to) })
		if cap(out) <= maxScratch { // a decoder keeps what it has decoded last
			u.zstd.Put(d)
		}
		return out, err
	default: // snappy
		return u.grow(memory, func(to []byte) ([]byte, error) { return xerial.DecodeCapped(to, b.records) })
	}
}

// readAll appends all that r has to memory.
func (u *unpacker) readAll(r io.Reader, memory []byte) ([]byte, error) {
	out := bytes.NewBuffer(memory)
	_, err := out.ReadFrom(io.LimitReader(r, int64(u.limit)+1))
	if out.Len() > u.limit {
		err = errTooLarge
	}
	return out.Bytes(), err
}

// grow calls decode with memory, and with larger and larger memory while what it decodes does not fit. Nothing says how large it
// must be but the compressed bytes, which may be hostile. zstd has several errors for memory that is too small, but all for a
// block that does not fit behind what it has decoded.
func (u *unpacker) grow(memory []byte, decode func(to []byte) ([]byte, error)) ([]byte, error) {
	for size := min(max(cap(memory)-zstdBlock, minScratch), u.limit); ; {
		memory = slices.Grow(memory[:0], size+zstdBlock)
		out, err := decode(memory[: 0 : size+zstdBlock])
		small := len(out) > size || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, xerial.ErrDstTooSmall)
		switch {
		case err == nil && len(out) <= u.limit:
			return out, nil
		case !small:
			return memory, err
		case size == u.limit:
			return memory, errTooLarge
		case size < u.limit/4:
			size *= 4
		default:
			size = u.limit
		}
	}
}
