package fetch

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// rawBatch has records as they are.
func rawBatch(first int64, attributes, lastDelta, count int, records []byte) []byte {
	return withHeader(first, 7, batchBody(attributes, int64(lastDelta), 0, 0, -1, count, records))
}

func rawRecord(delta int64, headers int) []byte {
	return record(0, delta, nil, []byte("v"), slices.Repeat([][]byte{{}}, 2*headers)...)
}

// A record whose offset is behind its batch must not have the messages behind that batch be left out.
func TestOffsetBehindItsBatch(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(2)}, batch{values: vals(50)}, batch{values: vals(50)})
		k.change(func() {
			k.log(0).bytes[0] = rawBatch(0, 0, 1, 2, append(rawRecord(0, 0), rawRecord(1<<30, 0)...))
		})
		p := open(t, x, 0, 0, -1)
		got, err := readTo(t, p)
		same(t, got, seq(0, 1))
		if !errors.Is(err, ErrUnreadable) {
			t.Error("passed over in silence")
		}
	})
}

// The error for bytes behind the last record of a batch names an offset of that batch. All its messages are handed out, each
// time that it is read.
func TestSpoiltTail(t *testing.T) {
	records := slices.Concat(rawRecord(0, 0), rawRecord(1, 0), rawRecord(2, 0), []byte{0})
	for name, bad := range map[string][]byte{
		"not compressed": rawBatch(2, 0, 2, 3, records), "compressed": rawBatch(2, 1, 2, 3, zipped(records)),
	} {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(2)}, batch{values: vals(3)}, batch{values: vals(2)})
			k.change(func() { k.log(0).bytes[1] = bad })
			for _, from := range []int64{0, 2, 4, 4, 3} {
				p := open(t, x, 0, from, -1)
				got, err := readTo(t, p)
				same(t, got, seq(from, 5))
				unreadable(t, err, 4, 5)
				p.Close()
			}
			same(t, offsets(t, open(t, x, 0, 5, -1), 7), seq(5, 7))
		})
	}
}

func TestHeaderBomb(t *testing.T) {
	const limit = 1 << 20
	raw := rawRecord(0, limit/2-20)
	z := compressed(sarama.CompressionZSTD, raw)
	b := &recordBatch{attributes: int16(sarama.CompressionZSTD), count: 1, records: z, size: len(z) + 61}
	u := newUnpacker(limit)
	read := func() error {
		rest, err := u.open(*b)
		if err == nil {
			err = rest.decode(&Batch{Messages: make([]sarama.ConsumerMessage, 0, 64)}, &Partition{}, maxHandOut)
		}
		return err
	}
	_ = read() // what any batch needs
	var err error
	took := allocated(func() { err = read() })
	t.Logf("%d bytes compressed, %d raw: %d KB allocated, %v", len(z), len(raw), took>>10, err)
	if took > 16*limit {
		t.Error("a bomb")
	}
}

func TestNoRecords(t *testing.T) {
	for _, attributes := range []int{0, 4} {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(5)}, batch{values: vals(5)})
			k.change(func() { k.log(0).bytes[0] = rawBatch(0, attributes, 4, 5, nil) })
			_, err := readTo(t, open(t, x, 0, 0, -1))
			assert.Error(t, err, ErrUnreadable, "attributes %d: the read of a batch that lacks its 5 records", attributes)
		})
	}
}

// The bomb through the fetcher: it ends the partition, as any batch that is too large does.
func TestHeaderBombEnds(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxBatchBytes = 1 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(1)}, batch{values: vals(1)}, batch{values: vals(1)})
		k.change(func() {
			k.log(0).bytes[1] = rawBatch(1, 4, 0, 1, compressed(sarama.CompressionZSTD, rawRecord(0, 1<<19-20)))
		})
		if err := stops(t, x, 0, -1, 1, 2); !strings.Contains(err.Error(), "MaxBatchBytes") {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		stops(t, x, 1, -1, 1, 2)
		same(t, offsets(t, open(t, x, 0, 2, -1), 3), seq(2, 3))
	})
}

// lz4 must not give bytes of another batch to one that refers to what is before its beginning.
func TestLZ4Dict(t *testing.T) {
	u := newUnpacker(1 << 20)
	unpack := func(block []byte) string {
		frame := []byte{0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, xxh32(0x40, 0x40)} // version 1, dependent blocks, 64 KB
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(block))), block...)
		got, _ := u.unpack(&recordBatch{attributes: 3, records: append(frame, 0, 0, 0, 0)})
		return string(got)
	}
	secret := "TOP-SECRET-OF-ANOTHER-TOPIC!"
	first := append([]byte{0xf0, byte(len(secret) - 15)}, secret...)
	assert.Equal(t, unpack(first), secret, "the first batch")
	// one literal, then a match at offset len(secret)+1 of 15, then 5 literals
	second := []byte{0x1b, 'x', byte(len(secret) + 1), 0, 0x50, '1', '2', '3', '4', '5'}
	for range 5 {
		if got := unpack(second); strings.Contains(got, "SECRET") {
			t.Errorf("%q: bytes of another batch", got)
		}
		unpack(first)
	}
}

// xxh32 returns the byte of the hash of the descriptor of a frame that lz4 wants.
func xxh32(descriptor ...byte) byte {
	const p1, p2, p3, p5 = 2654435761, 2246822519, 3266489917, 374761393
	h := uint32(p5) + uint32(len(descriptor))
	for _, c := range descriptor {
		h += uint32(c) * p5
		h = (h<<11 | h>>21) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return byte((h ^ h>>16) >> 8)
}

// A bomb that equals a later one, with a good batch between, is not taken for it, though another leader has it.
func TestEqualBombs(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxBatchBytes = 1 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		bomb := batch{values: wide(3, 600_000), codec: sarama.CompressionZSTD}
		k.add(0, bomb, batch{values: vals(1)}, bomb, batch{values: vals(4)})
		stops(t, x, 0, -1, 0, 3)
		synctest.Wait()
		k.change(func() { k.log(0).epoch = 1 })
		time.Sleep(2 * time.Minute)
		stops(t, x, 0, -1, 0, 3)
	})
}
