package fetch

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/noerr"
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
	small := func(o *Options) { o.MaxBytes = 400 << 10 }
	readsSoon := func(t *testing.T, p *Partition, end int64) {
		t.Helper()
		began := time.Now()
		same(t, offsets(t, p, end), seq(0, end))
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	}
	subtest(t, "grows", small, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		for id := range int32(2) {
			k.add(id, many(40, batch{values: wide(30, 1000)})...)
		}
		a, b := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
		time.Sleep(time.Second) // both are full
		b.Close()
		readsSoon(t, a, 1200)
	})
	subtest(t, "shrinks", small, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: wide(1, 300<<10)}, batch{values: vals(1)})
		k.add(1)
		k.log(1).leader = 2
		k.known[key{"t", 1}] = fakeLeader{2, 0}
		a := open(t, x, 0, 0, -1)
		time.Sleep(time.Second) // it is full by one batch
		open(t, x, 1, 0, -1)
		time.Sleep(time.Second)
		readsSoon(t, a, 2)
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
		before := heap()
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
		if held := heap() - before; held > 2*limit {
			t.Errorf("%d bytes held, the bound is %d", held, limit)
		}
		same(t, offsets(t, waits, 400), seq(0, 400))
	})
}

// BufferBytes holds for what is compressed, too: it waits as it came, and is decompressed when it is handed out. A reader has one
// record batch in hand.
func TestMemoryOfCompressed(t *testing.T) {
	const parts, perBatch = 16, 2 << 20 / 1000
	const line = `{"time":"2026-11-27T12:00:00.000Z","level":"info","service":"orders","message":"order accepted","customer":%08d,"items":[1,2,3]}`
	unpacked, values := 0, make([]string, perBatch) // of some 1 KB, which compress well
	for i := range values {
		values[i] = strings.Repeat(fmt.Sprintf(line, i), 7)
		unpacked += len(values[i])
	}
	one := (&batch{values: values, codec: sarama.CompressionZSTD, bare: true}).encode()
	for _, limit := range []int{64 << 20, 8 << 20} {
		subtest(t, fmt.Sprint(limit>>20, " MiB"), func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			for id := range int32(parts) {
				l := k.log(id)
				for range 4 * limit / parts / len(one) {
					l.batches = append(l.batches, batch{base: l.end, last: l.end + perBatch - 1})
					l.bytes = append(l.bytes, slices.Concat(wire(nil).i64(l.end), one[8:]))
					l.end += perBatch
				}
			}
			before := heap()
			ps := make([]*Partition, parts)
			for id := range ps {
				ps[id] = open(t, x, int32(id), 0, -1)
			}
			time.Sleep(time.Second)
			if waits := heap() - before; waits > 2*limit {
				t.Errorf("%d MB wait, BufferBytes is %d MB", waits>>20, limit>>20)
			}
			hands := make([]Batch, parts)
			for round := range 2 {
				for id, p := range ps {
					b, err := next(t, p, time.Second)
					noerr.Must(t, err)
					hands[id] = b
					if id+round > 0 {
						continue
					}
					if taken := heap() - before; taken > 2*limit+unpacked {
						t.Errorf("%d MB with one batch of %d MB in hand", taken>>20, unpacked>>20)
					}
				}
				time.Sleep(time.Second)
			}
			if taken := heap() - before; taken > 2*limit+parts*(unpacked+maxHandOut) {
				t.Errorf("%d MB, with a batch of %d MB in hand for each partition", taken>>20, unpacked>>20)
			}
			runtime.KeepAlive(hands)
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
	s, err := newSettings(Options{Config: testConfig()})
	noerr.Must(t, err)
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
		for i := range int64(50_000) {
			last = c.of(i + 1)
			records = append(records, last.encode()...)
		}
		k := key{"t", 0}
		e := &entry{p: &Partition{key: k}, epoch: -1}
		a := &answer{parts: map[key]*part{k: {records: records}}}
		var r result
		if took := allocated(func() { r = e.parse(a, &s) }); took > c.most*len(records) {
			t.Errorf("%s: %d KB for %d KB", name, took>>10, len(records)>>10)
		}
		if r.err != nil || len(r.got) != 1 || !r.got[0].isEmpty() || r.got[0].next != last.end()+1 || r.got[0].leaderEpoch != last.epoch {
			t.Errorf("%s: %v, %d parts, %+v", name, r.err, len(r.got), r.got[0])
		}
	}
}
