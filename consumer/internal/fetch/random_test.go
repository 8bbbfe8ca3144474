package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// The Fetcher reads what sarama reads, from any offset, with seeks, partitions that open and close, and memory that is used
// again.
func TestRandomLogs(t *testing.T) {
	seed := rand.Uint64()
	t.Attr("seed", strconv.FormatUint(seed, 10))
	random := rand.New(rand.NewPCG(seed, 1))
	other := newOpinion(t)
	for run := range 25 {
		var all []byte
		var pieces [][]byte
		var bs []batch
		first := random.Int64N(50)
		start := first
		for range 1 + random.IntN(60) {
			some := randomBatch
			if random.IntN(2) == 0 {
				some = randomOld
			}
			b, after := some(random, first)
			parsed := part{records: b}
			noerr.Must(t, parsed.split())
			if last := parsed.batches[len(parsed.batches)-1]; last.old { // else it has offsets that no broker would give it out for
				after = last.last + 1
			}
			bs = append(bs, batch{base: first, last: max(after-1, 1)})
			pieces = append(pieces, b)
			all = append(all, b...)
			first = after
			if random.IntN(4) == 0 {
				first += random.Int64N(10)
			}
		}
		end := bs[len(bs)-1].last + 1
		decoded, err := other.decode(answerWith(all))
		noerr.Must(t, err)
		want := decoded[key{"t", 3}]
		for i := range want {
			want[i].Partition = 0
		}
		change := func(o *Options) {
			o.MaxBytes = 1 << (16 + random.IntN(8))
			if run%5 == 0 {
				o.MaxBytes = 1
			}
			o.Config.Consumer.Fetch.Default = int32(1 << (10 + random.IntN(10)))
		}
		inBubble(t, change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() {
				l := k.log(0)
				l.batches, l.bytes, l.end, l.start = bs, pieces, end, 0
				k.log(1)
			})
			at := start + random.Int64N(end-start)
			p := open(t, x, 0, at, -1)
			var got []*sarama.ConsumerMessage
			var texts []string
			index := func(at int64) int {
				n := 0
				for n < len(want) && want[n].Offset < at {
					n++
				}
				return n
			}
			i, seeks := index(at), 0
			var extra *Partition
			for pos := at; pos < end; {
				b, err := next(t, p, time.Minute)
				noerr.Must(t, err)
				if b.Next < pos {
					t.Fatalf("back from %d to %d", pos, b.Next)
				}
				for j := range b.Messages {
					m := &b.Messages[j]
					if i >= len(want) || describe(m) != describe(&want[i]) {
						t.Fatalf("got\n%s\nwant\n%s", describe(m), describe(&want[i]))
					}
					got, texts = append(got, m), append(texts, describe(m))
					i++
				}
				if n := index(b.Next); n != i {
					t.Fatalf("Next %d passes over messages: %d of %d", b.Next, i, n)
				}
				pos = b.Next
				p.of.mu.Lock()
				if p.buffered < 0 || p.inHand < 0 {
					t.Errorf("buffered %d, in hand %d", p.buffered, p.inHand)
				}
				p.of.mu.Unlock()
				switch random.IntN(8) {
				case 0:
					if seeks++; seeks < 20 {
						pos = start + random.Int64N(end-start)
						p.Reposition(pos)
						i = index(pos)
					}
				case 1:
					if extra == nil {
						extra = open(t, x, 1, 0, -1)
					} else {
						extra.Close()
						extra = nil
					}
				case 2:
					synctest.Wait()
				case 3:
					p.Close()
					p = open(t, x, 0, pos, -1)
				}
			}
			if _, err := next(t, p, time.Second); err == nil {
				t.Error("more than all")
			}
			p.of.mu.Lock()
			if p.buffered != 0 || p.inHand != 0 {
				t.Errorf("at the end: buffered %d, in hand %d", p.buffered, p.inHand)
			}
			p.of.mu.Unlock()
			for j := range got {
				if describe(got[j]) != texts[j] {
					t.Fatalf("message %d changed", got[j].Offset)
				}
			}
		})
	}
}

// The messages of aborted transactions are not read, those of the others are, whatever their order.
func TestRandomTransactions(t *testing.T) {
	seed := rand.Uint64()
	t.Attr("seed", strconv.FormatUint(seed, 10))
	random := rand.New(rand.NewPCG(seed, 1))
	for range 25 {
		var bs []batch
		var aborted []sarama.AbortedTransaction
		type openTx struct {
			first int64
			at    []int64
		}
		txs := map[int64]*openTx{}
		good := map[int64]bool{}
		at := int64(0)
		finish := func(id int64) {
			abort := random.IntN(2) == 0
			if abort {
				aborted = append(aborted, sarama.AbortedTransaction{ProducerID: id, FirstOffset: txs[id].first})
			} else {
				for _, o := range txs[id].at {
					good[o] = true
				}
			}
			delete(txs, id)
			bs = append(bs, batch{base: at, last: at, producer: id, control: true, abort: abort})
			at++
		}
		for range 60 {
			id := int64(random.IntN(5))
			if id > 0 && txs[id] != nil && random.IntN(2) == 0 {
				finish(id)
				continue
			}
			n := random.IntN(6)
			gap := int64(random.IntN(3))
			b := batch{base: at, last: at + int64(max(n, 1)) - 1 + gap, producer: id, codec: sarama.CompressionCodec(random.IntN(5)), values: vals(n)}
			if n == 0 {
				b.codec = 0
			}
			if b.last == 0 {
				b.last = 1
			}
			if id > 0 && txs[id] == nil {
				txs[id] = &openTx{first: at}
			}
			for j := range int64(n) {
				if id == 0 {
					good[at+j] = true
				} else {
					txs[id].at = append(txs[id].at, at+j)
				}
			}
			bs, at = append(bs, b), b.last+1
		}
		for id := range int64(5) {
			if txs[id] != nil {
				finish(id)
			}
		}
		bs = append(bs, batch{base: at, last: at, values: vals(1)})
		good[at] = true
		end := at + 1
		var want []int64
		for o := range end {
			if good[o] {
				want = append(want, o)
			}
		}
		inBubble(t, func(o *Options) { committed(o); o.MaxBytes = 1 << (15 + random.IntN(6)) }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() {
				l := k.log(0)
				l.end, l.aborted = end, aborted
				for _, b := range bs {
					l.batches = append(l.batches, b)
					l.bytes = append(l.bytes, b.encode())
				}
			})
			p := open(t, x, 0, 0, -1)
			if got := offsets(t, p, end); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("got\n%v\nwant\n%v", got, want)
			}
		})
	}
}

// Kafka's overflow batch of a down-conversion, and ends of any length, are no messages.
func TestTailsOfOldSets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	b, _ := randomOld(random, 10)
	for n := range len(b) {
		p := &part{records: b[:n]}
		err := p.split()
		for i := range p.batches {
			if p.batches[i].size > n || p.batches[i].size == 0 {
				t.Fatal(n, p.batches[i].size)
			}
		}
		if err != nil {
			t.Fatal(n, err)
		}
		over := binary.BigEndian.AppendUint64(append([]byte(nil), b...), 1<<64-1)
		over = binary.BigEndian.AppendUint32(over, uint32(max(n+1, 61)))
		over = append(over, make([]byte, max(0, n-12))...)
		p = &part{records: over}
		if err := p.split(); err != nil {
			t.Fatal(n, err)
		}
	}
}

// Whatever a compressed message has, its partition goes on or ends with an UnreadableError; offsets grow and stay in it.
func TestHostileOldMessages(t *testing.T) {
	seed := rand.Uint64()
	t.Attr("seed", strconv.FormatUint(seed, 10))
	random := rand.New(rand.NewPCG(seed, 1))
	odd := func() int64 {
		return []int64{0, 1, 2, 3, 4, 5, 7, 9, 10, 1 << 31, 1 << 40, maxOffset, maxOffset + 1, 1<<63 - 1, -1, -5, -1 << 63}[random.IntN(17)]
	}
	good := batch{values: vals(5), legacy: true}
	read, refused := 0, 0
	for range 150 {
		var set []byte
		for range random.IntN(6) {
			set = append(set, legacyMessage(byte(random.IntN(10)/4), odd(), byte(random.IntN(20)/16), odd(), []byte("k"), []byte("v"))...)
		}
		if random.IntN(4) == 0 && len(set) > 0 {
			set = set[:random.IntN(len(set))]
		}
		if random.IntN(3) == 0 && len(set) > 0 {
			set[random.IntN(len(set))] ^= byte(1 << random.IntN(8))
		}
		codec := sarama.CompressionCodec(1 + random.IntN(7))
		payload := compressed(codec, set)
		if random.IntN(6) == 0 && len(payload) > 0 {
			payload = payload[:random.IntN(len(payload))]
		}
		wrapped := legacyMessage(byte(random.IntN(2)), 9, byte(codec)|byte(random.IntN(2)*logAppendTime), odd(), nil, payload)
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, good, good, good)
			k.change(func() { k.log(0).bytes[1] = wrapped })
			p := open(t, x, 0, 0, -1)
			at := int64(0)
			for at < 15 {
				b, err := next(t, p, time.Minute)
				if err != nil {
					var bad *UnreadableError
					if !errors.As(err, &bad) || bad.First < 5 || bad.First > 9 || bad.Next != 10 {
						t.Fatalf("%v after %d: %x", err, at, wrapped)
					}
					refused++
					p.Close()
					p = open(t, x, 0, bad.Next, -1)
					at = bad.Next
					continue
				}
				for _, m := range b.Messages {
					if m.Offset < at || m.Offset >= 15 || m.Offset >= b.Next {
						t.Fatalf("offset %d at %d, next %d", m.Offset, at, b.Next)
					}
					at = m.Offset + 1
					read++
				}
				at = b.Next
			}
			p.Close()
		})
	}
	t.Logf("%d read, %d refused", read, refused)
}
