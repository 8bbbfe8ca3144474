package fetch

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

// rawBatch has records as they are.
func rawBatch(first int64, attributes uint16, lastDelta, count uint32, records []byte) []byte {
	body := binary.BigEndian.AppendUint16(nil, attributes)
	body = binary.BigEndian.AppendUint32(body, lastDelta)
	body = append(body, make([]byte, 16)...)
	for range 14 {
		body = append(body, 255)
	}
	body = binary.BigEndian.AppendUint32(body, count)
	return withHeader(first, append(body, records...))
}

func rawRecord(delta int64, headers int) []byte {
	r := []byte{0, 0}
	r = binary.AppendVarint(r, delta)
	r = append(r, 1, 2, 'v')
	r = binary.AppendVarint(r, int64(headers))
	r = append(r, make([]byte, 2*headers)...)
	return append(binary.AppendVarint(nil, int64(len(r))), r...)
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
	zipped := zipped(records)
	for name, bad := range map[string][]byte{
		"not compressed": rawBatch(2, 0, 2, 3, records), "compressed": rawBatch(2, 1, 2, 3, zipped),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(0, batch{values: vals(2)}, batch{values: vals(3)}, batch{values: vals(2)})
				k.change(func() { k.log(0).bytes[1] = bad })
				for _, from := range []int64{0, 2, 4, 4, 3} {
					p := open(t, x, 0, from, -1)
					got, err := readTo(t, p)
					same(t, got, seq(from, 5))
					var unreadable *UnreadableError
					if !errors.As(err, &unreadable) || unreadable.First != 4 || unreadable.Next != 5 {
						t.Errorf("from %d: %v, want the batch from 4 to 5", from, err)
					}
					p.Close()
				}
				same(t, offsets(t, open(t, x, 0, 5, -1), 7), seq(5, 7))
			})
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
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := read()
	runtime.ReadMemStats(&after)
	t.Logf("%d bytes compressed, %d raw: %d KB allocated, %v", len(z), len(raw), (after.TotalAlloc-before.TotalAlloc)>>10, err)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16*limit {
		t.Error("a bomb")
	}
}

func TestNoRecords(t *testing.T) {
	for _, attributes := range []uint16{0, 4} {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(5)}, batch{values: vals(5)})
			k.change(func() { k.log(0).bytes[0] = rawBatch(0, attributes, 4, 5, nil) })
			got, err := readTo(t, open(t, x, 0, 0, -1))
			t.Log(got, err)
			if !errors.Is(err, ErrUnreadable) {
				t.Errorf("attributes %d: 5 records passed over in silence", attributes)
			}
		})
	}
}

func TestCodec(t *testing.T) {
	b := &recordBatch{attributes: 7, count: 1, records: []byte("secret")}
	_, err := newUnpacker(100).unpack(b)
	t.Log(err)
	if strings.Contains(err.Error(), "PANIC") {
		t.Error(err)
	}
}

// The bomb through the fetcher: it ends the partition, as any batch that is too large does.
func TestHeaderBombEnds(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxBatchBytes = 1 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(1)}, batch{values: vals(1)}, batch{values: vals(1)})
		k.change(func() {
			k.log(0).bytes[1] = rawBatch(1, 4, 0, 1, compressed(sarama.CompressionZSTD, rawRecord(0, 1<<19-20)))
		})
		p := open(t, x, 0, 0, -1)
		got, err := readTo(t, p)
		same(t, got, seq(0, 1))
		var bad *UnreadableError
		if !errors.As(err, &bad) || bad.First != 1 || bad.Next != 2 || !strings.Contains(err.Error(), "MaxBatchBytes") {
			t.Fatal(err)
		}
		p.Close()
		time.Sleep(2 * time.Minute)
		p = open(t, x, 0, 1, -1)
		if _, err := readTo(t, p); !errors.As(err, &bad) || bad.First != 1 || bad.Next != 2 {
			t.Fatal(err)
		}
		p.Close()
		same(t, offsets(t, open(t, x, 0, 2, -1), 3), seq(2, 3))
	})
}

// lz4 must not give bytes of another batch to one that refers to what is before its beginning.
func TestLZ4Dict(t *testing.T) {
	u := newUnpacker(1 << 20)
	frame := func(block []byte) []byte {
		out := []byte{0x04, 0x22, 0x4d, 0x18}
		desc := []byte{0x40, 0x40} // version 1, dependent blocks, 64 KB
		out = append(out, desc...)
		out = append(out, byte(xxh32(desc)>>8))
		out = binary.LittleEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
		return append(out, 0, 0, 0, 0)
	}
	secret := "TOP-SECRET-OF-ANOTHER-TOPIC!"
	first := append([]byte{0xf0, byte(len(secret) - 15)}, secret...)
	got, err := u.unpack(&recordBatch{attributes: 3, records: frame(first)})
	t.Logf("%q %v", got, err)
	// one literal, then a match at offset len(secret)+1 of 15, then 5 literals
	second := []byte{0x1b, 'x', byte(len(secret) + 1), 0, 0x50, '1', '2', '3', '4', '5'}
	for range 5 {
		got, err = u.unpack(&recordBatch{attributes: 3, records: frame(second)})
		t.Logf("%q %v", got, err)
		if strings.Contains(string(got), "SECRET") {
			t.Error("bytes of another batch")
		}
		_, _ = u.unpack(&recordBatch{attributes: 3, records: frame(first)})
	}
}

func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5&0xffffffff) + uint32(len(b))
	for _, c := range b {
		h += uint32(c) * p5
		h = h<<11 | h>>21
		h *= p1
	}
	h ^= h >> 15
	h *= p2
	h ^= h >> 13
	h *= p3
	_ = uint32(p4)
	return h ^ h>>16
}

// A bomb that equals a later one, with a good batch between, is not taken for it, though another leader has it.
func TestEqualBombs(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxBatchBytes = 1 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		bomb := batch{values: slices.Repeat([]string{strings.Repeat("x", 600_000)}, 3), codec: sarama.CompressionZSTD}
		k.add(0, bomb, batch{values: vals(1)}, bomb, batch{values: vals(4)})
		try := func() {
			p := open(t, x, 0, 0, -1)
			got, err := readTo(t, p)
			var bad *UnreadableError
			if !errors.As(err, &bad) || bad.First != 0 || bad.Next != 3 {
				t.Errorf("%v %v", got, err)
			}
			p.Close()
			synctest.Wait()
		}
		try()
		k.change(func() { k.log(0).epoch = 1 })
		time.Sleep(2 * time.Minute)
		try()
	})
}
