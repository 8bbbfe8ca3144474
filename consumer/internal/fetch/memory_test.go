package fetch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// The memory of all partitions stays in the bound, and each goes on.
func TestMemoryBound(t *testing.T) {
	const parts, limit = 20, 2 << 20
	inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		value := strings.Repeat("x", 1000)
		var ps []*Partition
		for id := range int32(parts) {
			for range 100 {
				k.add(id, batch{values: slices.Repeat([]string{value}, 10)})
			}
			ps = append(ps, open(t, x, id, 0, -1))
		}
		time.Sleep(time.Second)
		for round := range 5 {
			held, ask := 0, int64(0)
			x.mu.Lock()
			for _, p := range ps {
				held += p.buffered + p.inHand
			}
			x.mu.Unlock()
			if held > limit+limit/50 || held < limit/4 {
				t.Errorf("round %d: %d bytes held, the bound is %d", round, held, limit)
			}
			for _, f := range k.requests() {
				sum := int64(0)
				for _, a := range f.partitions {
					sum += int64(a.size)
				}
				ask = max(ask, sum)
			}
			if ask > limit {
				t.Errorf("a request asks for %d bytes, the bound is %d", ask, limit)
			}
			for _, p := range ps {
				if _, err := next(t, p, time.Second); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		for _, p := range ps {
			p.Next(t.Context())
			x.mu.Lock()
			at := p.handed
			x.mu.Unlock()
			same(t, offsets(t, p, 1000), seq(at, 1000))
		}
	})
}

// A partition that waits for room is fetched when its share has changed meanwhile: when another one was closed, or opened.
func TestRoomByShare(t *testing.T) {
	const limit = 400 << 10
	value := strings.Repeat("x", 1000)
	fill := func(k *fakeCluster, id int32) {
		for range 40 {
			k.add(id, batch{values: slices.Repeat([]string{value}, 30)})
		}
	}
	t.Run("grows", func(t *testing.T) {
		inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k, 0)
			fill(k, 1)
			a, b := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
			time.Sleep(time.Second) // both are full
			b.Close()
			began := time.Now()
			same(t, offsets(t, a, 1200), seq(0, 1200))
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("shrinks", func(t *testing.T) {
		inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: []string{strings.Repeat("x", 300<<10)}}, batch{values: vals(1)})
			k.add(1)
			k.log(1).leader = 2
			k.known[key{"t", 1}] = fakeLeader{2, 0}
			a := open(t, x, 0, 0, -1)
			time.Sleep(time.Second) // it is full by one batch
			open(t, x, 1, 0, -1)
			time.Sleep(time.Second)
			began := time.Now()
			same(t, offsets(t, a, 2), seq(0, 2))
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
}

// Messages that wait do not keep the answers alive that they came in with others.
func TestMemoryOfAnswers(t *testing.T) {
	const limit = 4 << 20
	inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0)
		k.add(1)
		waits, goesOn := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
		value := strings.Repeat("x", 100<<10)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for n := range int64(400) {
			k.change(func() { // one answer for both; the log keeps nothing
				for id, v := range []string{"v", value} {
					l, b := k.log(int32(id)), batch{base: n, values: []string{v}}
					l.batches, l.bytes, l.end = []batch{b}, [][]byte{b.encode()}, n+1
				}
			})
			same(t, offsets(t, goesOn, n+1), []int64{n})
			time.Sleep(20 * time.Millisecond)
		}
		k.change(func() { k.fetches = nil })
		runtime.GC()
		runtime.ReadMemStats(&after)
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 2*limit {
			t.Errorf("%d bytes held, the bound is %d", held, limit)
		}
		same(t, offsets(t, waits, 400), seq(0, 400))
	})
}

// BufferBytes holds for what is compressed, too: it waits as it came, and is decompressed when it is handed out. A reader has one
// record batch in hand.
func TestMemoryOfCompressed(t *testing.T) {
	const parts, perBatch = 16, 2 << 20 / 1000
	line := []byte(`{"time":"2026-11-27T12:00:00.000Z","level":"info","service":"orders","message":"order accepted","customer":%08d,"items":[1,2,3]}`)
	values := make([]string, perBatch) // of some 1 KB, which compress well
	for i := range values {
		values[i] = strings.Repeat(fmt.Sprintf(string(line), i), 7)
	}
	one := (&batch{values: values, codec: sarama.CompressionZSTD, bare: true}).encode()
	unpacked := 0
	for _, v := range values {
		unpacked += len(v)
	}
	t.Logf("a record batch of %d KB has %d KB", len(one)>>10, unpacked>>10)
	for _, limit := range []int{64 << 20, 8 << 20} {
		t.Run(fmt.Sprint(limit>>20, " MiB"), func(t *testing.T) {
			inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				for id := range int32(parts) {
					k.change(func() {
						l := k.log(id)
						for range 4 * limit / parts / len(one) {
							b := bytes.Clone(one[:8])
							binary.BigEndian.PutUint64(b, uint64(l.end))
							l.batches = append(l.batches, batch{base: l.end, last: l.end + perBatch - 1})
							l.bytes = append(l.bytes, slices.Concat(b, one[8:]))
							l.end += perBatch
						}
					})
				}
				held := func() int {
					runtime.GC()
					runtime.GC()
					var now runtime.MemStats
					runtime.ReadMemStats(&now)
					return int(now.HeapAlloc)
				}
				before := held()
				ps := make([]*Partition, parts)
				for id := range ps {
					ps[id] = open(t, x, int32(id), 0, -1)
				}
				time.Sleep(time.Second)
				if waits := held() - before; waits > 2*limit {
					t.Errorf("%d MB wait, BufferBytes is %d MB", waits>>20, limit>>20)
				}
				hands := make([]Batch, parts)
				for round := range 2 {
					for id, p := range ps {
						b, err := next(t, p, time.Second)
						if err != nil {
							t.Fatal(err)
						}
						hands[id] = b
						if id+round > 0 {
							continue
						}
						if taken := held() - before; taken > 2*limit+unpacked {
							t.Errorf("%d MB with one batch of %d MB in hand", taken>>20, unpacked>>20)
						}
					}
					time.Sleep(time.Second)
				}
				if taken := held() - before; taken > 2*limit+parts*(unpacked+maxHandOut) {
					t.Errorf("%d MB, with a batch of %d MB in hand for each partition", taken>>20, unpacked>>20)
				}
				runtime.KeepAlive(hands)
			})
		})
	}
}

// Messages that are hidden take no memory beside those that are seen.
func TestMemoryOfHidden(t *testing.T) {
	inBubble(t, committed, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{producer: 7, values: vals(1000)}, batch{producer: 7, control: true, abort: true}, batch{values: vals(2)})
		k.log(0).aborted = []sarama.AbortedTransaction{{ProducerID: 7, FirstOffset: 0}}
		b, err := next(t, open(t, x, 0, 0, -1), time.Second)
		if err != nil || len(b.Messages) != 2 || cap(b.Messages) > 4 {
			t.Errorf("%d messages in a slice of %d: %v", len(b.Messages), cap(b.Messages), err)
		}
	})
}

// A record batch larger than everything comes through, and the others do not wait for it.
func TestOversize(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.Fetch.Default = 32 << 10; o.MaxBytes = 128 << 10 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		big := strings.Repeat("x", 5<<20)
		k.busy = true
		k.add(0, batch{values: vals(100)})
		k.add(1, batch{values: vals(2)}, batch{values: []string{big}}, batch{values: vals(2)})
		a, b := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
		same(t, offsets(t, a, 100), seq(0, 100))
		same(t, offsets(t, b, 5), seq(0, 5))
		for _, f := range k.requests() {
			for _, ask := range f.partitions {
				if ask.size > 256<<10 {
					t.Errorf("asked for %d bytes of partition %d, though a batch comes whole if it comes alone", ask.size, ask.id)
				}
			}
		}
	})
}

// Record batches without messages are one while their answer is read. Those that differ take some times its size for a moment.
func TestMemoryOfEmptyBatches(t *testing.T) {
	const n = 50_000
	s, err := newSettings(Options{Config: testConfig()})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		of   func(i int64) batch
		most int // bytes allocated for one of the answer, with what growing leaves behind
	}{
		"empty":                  {func(i int64) batch { return batch{base: 5 * i, last: 5*i + 4} }, 1},
		"empty, of other epochs": {func(i int64) batch { return batch{base: 5 * i, last: 5*i + 4, epoch: int32(i % 2)} }, 12},
		"control":                {func(i int64) batch { return batch{base: i, last: i, control: true} }, 12},
	} {
		var records []byte
		var last batch
		for i := range int64(n) {
			last = c.of(i + 1)
			records = append(records, last.encode()...)
		}
		k := key{"t", 0}
		e := &entry{p: &Partition{key: k}, epoch: -1}
		a := &answer{parts: map[key]*part{k: {records: records}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := e.parse(a, &s)
		runtime.ReadMemStats(&after)
		took := int(after.TotalAlloc - before.TotalAlloc)
		if t.Logf("%s: %d KB of %d KB", name, took>>10, len(records)>>10); took > c.most*len(records) {
			t.Errorf("%s: %d KB for %d KB", name, took>>10, len(records)>>10)
		}
		if r.err != nil || len(r.got) != 1 || !r.got[0].isEmpty() || r.got[0].next != last.end()+1 || r.got[0].leaderEpoch != last.epoch {
			t.Errorf("%s: %v, %d parts, %+v", name, r.err, len(r.got), r.got[0])
		}
	}
}
