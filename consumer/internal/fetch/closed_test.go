package fetch

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// After Close, Next returns ErrClosed, and not what is left of the batch in hand.
func TestNextAfterClose(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(50_000), gzip: true})
		p := open(t, x, 0, 0, -1)
		b, err := next(t, p, time.Second)
		if err != nil || b.Next >= 50_000 {
			t.Fatal(b.Next, err)
		}
		p.Close()
		if b, err := next(t, p, time.Second); !errors.Is(err, ErrClosed) {
			t.Errorf("Next after Close: %d messages from %d, %v; want ErrClosed", len(b.Messages), b.Next-int64(len(b.Messages)), err)
		}
	})
}

// A control batch is not decompressed, whatever it says: brokers do not compress those that they write. It is not taken for the
// end of a transaction either.
func TestControlBatchIsNotDecompressed(t *testing.T) {
	record := binary.AppendVarint(nil, 10)
	record = append(record, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0) // its key says that it is an abort
	for codec, want := range map[sarama.CompressionCodec]bool{sarama.CompressionNone: true, sarama.CompressionZSTD: false} {
		b := &recordBatch{attributes: int16(codec) | control | transactional, count: 1, records: record, size: len(record) + 61, producer: 7}
		h := &hidden{producers: map[int64]bool{7: true}}
		if hides, err := h.hides(b); !hides || (err == nil) != want || h.producers[7] == want {
			t.Errorf("%v: hidden %t, the transaction goes on %t, %v", codec, hides, h.producers[7], err)
		}
	}
	const limit = 4 << 20
	z := compressed(sarama.CompressionZSTD, rawRecord(0, limit/2-20))
	b := &recordBatch{attributes: int16(sarama.CompressionZSTD) | control | transactional, count: 1, records: z, size: len(z) + 61, producer: 7}
	h := &hidden{producers: map[int64]bool{7: true}}
	var err error
	if took := allocated(func() { _, err = h.hides(b) }); err == nil || took > 64<<10 {
		t.Errorf("a control batch of %d bytes allocates %d KB: %v", b.size, took>>10, err)
	}
}
