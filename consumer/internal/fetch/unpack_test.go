package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/zstd"

	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

var codecs = []sarama.CompressionCodec{sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}

// A record batch that is larger than the limit when it is decompressed ends its partition alone, with an error that names offset,
// size and option. It is not decompressed again and again, and the messages before it and behind it are read.
func TestMaxBatchBytes(t *testing.T) {
	for _, codec := range codecs {
		subtest(t, codec.String(), func(o *Options) { o.MaxBatchBytes = 1 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			good, bomb := batch{values: wide(1000, 900), codec: codec}, batch{values: wide(1000, 1100), codec: codec}
			k.add(0, good, bomb, good)
			k.add(1, batch{values: vals(5)})
			beside := open(t, x, 1, 0, -1)
			err := stops(t, x, 0, -1, 1000, 2000)
			size := fmt.Sprintf("%d bytes", len(k.log(0).bytes[1]))
			says(t, err, "read t:0 at 1000", size, "Options.MaxBatchBytes", "1048576", "set that to more, or go on at 2000")
			assert.Equal(t, ReasonOf(err), Undecodable, "the reason")
			same(t, offsets(t, beside, 5), seq(0, 5))
			synctest.Wait() // for what was in flight
			from := len(k.requests())
			for range 5 {
				stopsAtOnce(t, x, 1000, 2000)
				time.Sleep(5 * time.Second)
			}
			if n, _ := asked(k, 0, from); n > 0 {
				t.Errorf("%d requests for a batch whose limit can't have changed", n)
			}
			same(t, offsets(t, open(t, x, 0, 2000, -1), 3000), seq(2000, 3000))
		})
	}
}

// says checks that an error has texts.
func says(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is missing in %q", text, err)
		}
	}
}

// sarama's own limit counts if it is set and less.
func TestMaxDecompressedBatchSize(t *testing.T) {
	defer func() { sarama.MaxDecompressedBatchSize = 0 }()
	for limit, want := range map[int32]bool{0: false, 1 << 16: true, 1 << 30: false} {
		sarama.MaxDecompressedBatchSize = limit
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: wide(1, 1<<17), codec: sarama.CompressionZSTD})
			_, err := next(t, open(t, x, 0, 0, -1), time.Second)
			if errors.Is(err, ErrUnreadable) != want || want && !strings.Contains(err.Error(), "sarama.MaxDecompressedBatchSize, which is 65536 bytes") {
				t.Errorf("limit %d: %v", limit, err)
			}
		})
	}
}

// The memory that a batch which is too large takes has the limit's order of size, and less of it stays.
func TestBombs(t *testing.T) {
	const (
		limit = 1 << 20
		most  = 24 << 20 // lz4 has buffers of 4 MB in a sync.Pool, which forgets some of them under the race detector
	)
	for _, codec := range codecs {
		b := &recordBatch{attributes: int16(codec), records: compressed(codec, make([]byte, 32<<20))}
		u := newUnpacker(limit)
		_, _ = u.unpack(&recordBatch{attributes: int16(codec), records: compressed(codec, make([]byte, 100))}) // what any batch needs
		var err error
		if took := allocated(func() { _, err = u.unpack(b) }); !errors.Is(err, errTooLarge) || took > most {
			t.Errorf("%v: %d bytes of 32 MB allocated %d KB: %v", codec, len(b.records), took>>10, err)
		}
	}
}

// A batch at the limit is read, and one of one byte more is not.
func TestLimitToTheByte(t *testing.T) {
	for _, codec := range codecs {
		for _, limit := range []int{100, minScratch, minScratch + 1, 300_000} {
			u := newUnpacker(limit)
			for _, more := range []int{-1, 0, 1} {
				data := bytes.Repeat([]byte("x"), limit+more)
				for _, twice := range []bool{false, true} {
					got, err := u.unpack(&recordBatch{attributes: int16(codec), records: compressed(codec, data)})
					if errors.Is(err, errTooLarge) != (more > 0) || err == nil && !bytes.Equal(got, data) {
						t.Errorf("%v, limit %d, %d bytes, again %t: %d bytes, %v", codec, limit, len(data), twice, len(got), err)
					}
				}
			}
		}
	}
}

// wideWindow returns parts as a batch of zstd whose window is larger than the limit, and which does not say its size.
func wideWindow(t *testing.T, parts ...[]byte) *recordBatch {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(128<<20), zstd.WithEncoderConcurrency(1))
	noerr.Must(t, err)
	for _, part := range parts {
		w.Write(part)
		w.Flush()
	}
	w.Close()
	return &recordBatch{attributes: int16(sarama.CompressionZSTD), records: out.Bytes()}
}

// A batch of zstd may say that its window is larger than the limit: those of level 22 do, however small.
func TestWideWindow(t *testing.T) {
	for _, size := range []int{100, 5 << 20} {
		data := bytes.Repeat([]byte("0123456789"), size/10)
		b := wideWindow(t, slices.Collect(slices.Chunk(data, 1<<20))...)
		for limit, want := range map[int]bool{8 << 20: true, 1 << 20: size < 1<<20} {
			got, err := newUnpacker(limit).unpack(b)
			if want != (err == nil) || err == nil && !bytes.Equal(got, data) || err != nil && !errors.Is(err, errTooLarge) {
				t.Errorf("%d bytes, limit %d: %d bytes, %v", size, limit, len(got), err)
			}
		}
	}
}

// A batch with a wide window that is spoilt is said to be, and not to be too large. It takes no more memory than it needs to see
// that.
func TestWideWindowSpoilt(t *testing.T) {
	b := wideWindow(t, bytes.Repeat([]byte("0123456789"), 100_000), []byte("x"))
	b.records[len(b.records)-1] ^= 1 // of the checksum
	var err error
	took := allocated(func() { _, err = newUnpacker(defaultMaxBatch).unpack(b) })
	if !errors.Is(err, errCorrupt) || errors.Is(err, errTooLarge) || took > 20<<20 {
		t.Errorf("%v; %d MB", err, took>>20)
	}
}

// The memory that one large batch has needed is not kept for others.
func TestScratchIsDropped(t *testing.T) {
	u := newUnpacker(defaultMaxBatch)
	for _, codec := range codecs {
		if _, err := u.unpack(&recordBatch{attributes: int16(codec), records: compressed(codec, make([]byte, 3*maxScratch))}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if memory, ok := u.scratch.Get().(*[]byte); ok && cap(*memory) > maxScratch {
				t.Errorf("%v: %d bytes are kept", codec, cap(*memory))
			}
		}
	}
}

// The memory in which one batch was decompressed is used for the next one.
func TestScratchIsUsedAgain(t *testing.T) {
	const rounds = 50
	for _, codec := range codecs {
		if codec == sarama.CompressionLZ4 { // its library has blocks of 4 MB, in a pool of its own
			continue
		}
		u, b := newUnpacker(defaultMaxBatch), &recordBatch{attributes: int16(codec), records: compressed(codec, make([]byte, 16<<10))}
		took := allocated(func() {
			for range rounds {
				_, err := u.unpack(b)
				noerr.Must(t, err)
			}
		})
		if took /= rounds; took > 1<<20 {
			t.Errorf("%v: %d KB for a batch of 16 KB", codec, took>>10)
		}
	}
}

// Hidden batches are not decompressed: what is wrong with them keeps nobody from reading.
func TestHiddenBatchesAreNotDecompressed(t *testing.T) {
	inBubble(t, committed, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{producer: 7, values: vals(10), codec: sarama.CompressionZSTD, garbage: true},
			batch{producer: 7, control: true, abort: true}, batch{values: vals(2)})
		k.log(0).aborted = []sarama.AbortedTransaction{{ProducerID: 7, FirstOffset: 0}}
		same(t, offsets(t, open(t, x, 0, 0, -1), 13), []int64{11, 12})
	})
}

// A batch whose checksum is right, and which can't be read all the same, shows when it is handed out. It is named as any other,
// and when the partition is opened there again, that fails.
func TestSpoiltInside(t *testing.T) {
	good, bad := batch{values: wide(10, 1000)}, batch{values: wide(10, 1000), codec: sarama.CompressionZSTD, garbage: true}
	for name, c := range map[string]struct {
		batches           []batch
		open, first, next int64
	}{
		"behind others": {slices.Concat(many(40, good), many(1, bad), many(40, good)), 0, 400, 410},
		"the first":     {slices.Concat(many(1, bad), many(3, good)), 0, 0, 10},
		"the last":      {slices.Concat(many(3, good), many(1, bad)), 0, 30, 40},
		"opened inside": {slices.Concat(many(1, good), many(1, bad), many(3, good)), 15, 15, 20},
		"equal ones":    {slices.Concat(many(3, good), many(3, bad), many(3, good)), 0, 30, 40},
	} {
		var failures tally
		subtest(t, name, func(o *Options) { o.OnFailure = failures.add }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, c.batches...)
			p := open(t, x, 0, c.open, -1)
			got, err := readTo(t, p)
			same(t, got, seq(c.open, c.first))
			unreadable(t, err, c.first, c.next)
			failures.only(t, Undecodable, 1, 1)
			assert.Equal(t, p.read(func() int64 { return int64(p.buffered) }), 0, "bytes that wait behind the batch")
			p.Close()
			for range 3 {
				synctest.Wait() // for what was in flight
				from := len(k.requests())
				stopsAtOnce(t, x, c.first, c.next)
				if n, large := asked(k, 0, from); n != 1 || large > 0 {
					t.Errorf("%d requests when it was opened again, %d of them large", n, large)
				}
			}
		})
	}
}

// While a batch can't be read that is wrong inside, its error lasts in the log, though the position has passed it. It ends when
// what is behind it was handed out, and reading waits for no request meanwhile.
func TestSpoiltInsideLasts(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(10)}, batch{values: vals(10), codec: sarama.CompressionZSTD, garbage: true}, batch{values: vals(10)})
		for range 3 {
			x.settings.Errors.Failed(kindFetch, "t:0", stops(t, x, 0, -1, 10, 20))
			time.Sleep(5 * time.Second)
		}
		if all := x.settings.Errors.Troubles(); len(all) != 1 || all[0].Until != nil {
			t.Errorf("troubles %+v", all)
		}
		k.change(func() {
			l := k.log(0)
			l.batches[1].garbage, l.bytes[1] = false, (&batch{base: 10, values: vals(10)}).encode()
		})
		p := open(t, x, 0, 0, -1)
		time.Sleep(time.Minute) // nobody reads
		if n := len(k.requests()); n > 300 {
			t.Errorf("%d requests", n)
		}
		same(t, offsets(t, p, 30), seq(0, 30))
		k.add(0, batch{values: vals(1)})
		same(t, offsets(t, p, 31), seq(30, 31))
		time.Sleep(time.Second)
		synctest.Wait()
		if all := x.settings.Errors.Troubles(); len(all) != 1 || all[0].Until == nil {
			t.Errorf("troubles %+v", all)
		}
	})
}

// Batches that wait do not change when the next answer comes.
func TestWhatWaitsKeepsItsBytes(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: []string{"aaaa"}})
		k.add(1)
		p := open(t, x, 0, 0, -1)
		open(t, x, 1, 0, -1)
		synctest.Wait()
		for range 5 {
			k.add(1, batch{values: []string{"bbbb"}})
			synctest.Wait()
		}
		if b, err := next(t, p, time.Second); err != nil || len(b.Messages) != 1 || string(b.Messages[0].Value) != "aaaa" {
			t.Errorf("waited: %+v, %v", b.Messages, err)
		}
	})
}

// The bytes of messages stay what they are, however many answers come after theirs, and whatever is decompressed meanwhile.
func TestMessagesKeepTheirBytes(t *testing.T) {
	const parts, rounds = 6, 30
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		value := func(id int32, i int) string { return strings.Repeat(fmt.Sprint(id, ":", i, " "), 40) }
		for id := range int32(parts) {
			for i := range rounds {
				k.add(id, batch{values: slices.Repeat([]string{value(id, i)}, 50), codec: sarama.CompressionCodec(id) % 5, legacy: id == 5})
			}
		}
		var readers sync.WaitGroup
		for id := range int32(parts) {
			p := open(t, x, id, 0, -1)
			readers.Go(func() {
				var all []*sarama.ConsumerMessage
				for len(all) < rounds*50 {
					b, err := p.Next(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					for i := range b.Messages {
						all = append(all, &b.Messages[i])
					}
				}
				for i, m := range all {
					if string(m.Value) != value(id, i/50) || string(m.Key) != "k" || m.Offset != int64(i) {
						t.Errorf("message %d of partition %d at %d: %q", i, id, m.Offset, m.Value)
						return
					}
				}
			})
		}
		readers.Wait()
	})
}

// A partition that is opened again at a batch which was wrong inside is read if the batch there is another one now.
func TestSpoiltInsideBefore(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(10)}, batch{values: vals(10), codec: sarama.CompressionZSTD, garbage: true}, batch{values: vals(10)})
		p := open(t, x, 0, 0, -1)
		if _, err := readTo(t, p); !errors.Is(err, ErrUnreadable) {
			t.Fatal(err)
		}
		p.Close()
		k.change(func() { k.log(0).bytes[1] = (&batch{base: 10, values: vals(10)}).encode() })
		same(t, offsets(t, open(t, x, 0, 10, -1), 30), seq(10, 30))
	})
}
