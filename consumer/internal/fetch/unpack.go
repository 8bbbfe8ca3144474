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
	limit  int
	option string // what the limit is from

	scratch, gzip sync.Pool
	zstd          sync.Pool // decoders that bound windows by the limit, too
	wideZstd      sync.Pool // for batches that say their window is larger, as small ones of level 22 do
}

// newUnpacker returns an unpacker for the smaller of the limits of Options and of sarama, where 0 is no limit.
func newUnpacker(maxBatch int) *unpacker {
	u := &unpacker{limit: maxBatch, option: "Options.MaxBatchBytes"}
	if most := int(sarama.MaxDecompressedBatchSize); most > 0 && most < maxBatch {
		u.limit, u.option = most, "sarama.MaxDecompressedBatchSize"
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
	memory, ok := u.scratch.Get().(*[]byte)
	if !ok {
		memory = new([]byte)
	}
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

// verify returns the error that reading a batch ends with.
func (u *unpacker) verify(b *recordBatch) error {
	raw, err := u.unpack(b)
	if err != nil {
		return err
	}
	var rest unpacked
	messages := make([]sarama.ConsumerMessage, 0, 64)
	err = rest.open(b, raw)
	for rest.by = u; err == nil && rest.raw != nil; {
		err = rest.decode(&Batch{Messages: messages}, &Partition{}, maxHandOut)
	}
	return err
}

// decompress returns the records of a batch in memory, or in larger memory. That is returned with an error, too.
func (u *unpacker) decompress(b *recordBatch, memory []byte) ([]byte, error) {
	switch b.codec() {
	case sarama.CompressionGZIP:
		z, ok := u.gzip.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		defer u.gzip.Put(z)
		if err := z.Reset(bytes.NewReader(b.records)); err != nil {
			return memory, err
		}
		return u.readAll(z, memory)
	case sarama.CompressionLZ4:
		// A new one for each batch: one that is reset has what a frame of linked blocks refers to from the batch before.
		return u.readAll(lz4.NewReader(bytes.NewReader(b.records)), memory)
	case sarama.CompressionZSTD:
		out, err := decodeZstd(&u.zstd, zstd.WithDecoderMaxMemory(uint64(u.limit)), b.records, memory)
		switch {
		case errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return out, errTooLarge
		case errors.Is(err, zstd.ErrWindowSizeExceeded):
			return u.grow(memory, func(to []byte) ([]byte, bool, error) {
				out, err := decodeZstd(&u.wideZstd, zstd.WithDecodeAllCapLimit(true), b.records, to)
				// It has several errors for memory that is too small, but all for a block that may not fit.
				return out, errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out)+zstdBlock > cap(to), err
			})
		}
		return out, err
	default: // snappy
		return u.grow(memory, func(to []byte) ([]byte, bool, error) {
			out, err := xerial.DecodeCapped(to, b.records)
			return out, errors.Is(err, xerial.ErrDstTooSmall), err
		})
	}
}

// decodeZstd decompresses with a decoder of a pool, or one with an option. A decoder keeps what it has decoded last in memory, so one of
// a large batch does not stay.
func decodeZstd(pool *sync.Pool, opt zstd.DOption, compressed, to []byte) ([]byte, error) {
	d, ok := pool.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), opt); err != nil {
			return to, err
		}
	}
	out, err := d.DecodeAll(compressed, to)
	if cap(out) <= maxScratch {
		pool.Put(d)
	}
	return out, err
}

// readAll appends all that r has to memory.
func (u *unpacker) readAll(r io.Reader, memory []byte) ([]byte, error) {
	for {
		if cap(memory)-len(memory) < minScratch {
			memory = slices.Grow(memory, max(min(len(memory), u.limit-len(memory)), minScratch))
		}
		n, err := r.Read(memory[len(memory):cap(memory)])
		memory = memory[:len(memory)+n]
		switch {
		case len(memory) > u.limit:
			return memory, errTooLarge
		case errors.Is(err, io.EOF):
			return memory, nil
		case err != nil:
			return memory, err
		}
	}
}

// grow calls decode with memory, and with larger and larger memory while its error may be that memory is too small. Nothing says how
// large it must be but the compressed bytes, which may be hostile.
func (u *unpacker) grow(memory []byte, decode func(to []byte) (out []byte, small bool, err error)) ([]byte, error) {
	for size := min(max(cap(memory), minScratch), u.limit); ; {
		memory = slices.Grow(memory[:0], size)
		out, small, err := decode(memory[:0:size])
		switch {
		case err == nil:
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
