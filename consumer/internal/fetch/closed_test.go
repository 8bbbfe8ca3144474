package fetch

import (
	"errors"
	"runtime"
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

// A control batch may be a bomb of headers, too.
func TestControlBatchIsNoBomb(t *testing.T) {
	const limit = 4 << 20
	raw := rawRecord(0, limit/2-20)
	z := compressed(sarama.CompressionZSTD, raw)
	b := &recordBatch{attributes: int16(sarama.CompressionZSTD) | control | transactional, count: 1, records: z, size: len(z) + 61, producer: 7}
	h := &hidden{unpacker: newUnpacker(limit), committed: true, producers: map[int64]bool{7: true}}
	_, _ = h.hides(b)
	h.producers[7] = true
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := h.hides(b)
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	if err == nil {
		t.Error("a bomb is read")
	}
	if took > 4*limit {
		t.Errorf("a control batch of %d bytes allocates %d MB with a limit of %d MB", b.size, took>>20, limit>>20)
	}
}
