package fetch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// decodeAll decodes the record batches in an answer, as a partition does at its start.
func decodeAll(u *unpacker, a *answer) (map[key][]sarama.ConsumerMessage, error) {
	out := map[key][]sarama.ConsumerMessage{}
	for k, p := range a.parts {
		if err := p.split(); err != nil {
			return nil, err
		}
		from := &Partition{key: k}
		var next int64
		for i := range p.batches {
			b := &p.batches[i]
			if b.partial || b.count == 0 {
				continue
			}
			rest, err := u.open(*b)
			if err != nil {
				return nil, err
			}
			for rest.raw != nil {
				got := Batch{Next: next}
				rest.makeRoom(&got, 4<<10, 0)
				if err := rest.decode(&got, from, 4<<10); err != nil {
					return nil, err
				}
				next = got.Next
				out[k] = append(out[k], got.Messages...)
			}
		}
	}
	return out, nil
}

// describe writes all that a message has, with nil and empty told apart.
func describe(m *sarama.ConsumerMessage) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s:%d %d %v %v ", m.Topic, m.Partition, m.Offset, m.Timestamp.UTC(), m.BlockTimestamp)
	for _, b := range [][]byte{m.Key, m.Value} {
		fmt.Fprintf(&out, "%t %x ", b == nil, b)
	}
	fmt.Fprintf(&out, "headers %t", m.Headers == nil)
	for _, h := range m.Headers {
		fmt.Fprintf(&out, " %t %x=%t %x", h.Key == nil, h.Key, h.Value == nil, h.Value)
	}
	return out.String()
}

// answerWith returns an answer of version 11 with records of partition 3 of topic t.
func answerWith(records []byte) []byte {
	out := append(append(make(wire, 10), 0, 0, 0, 1, 0, 1, 't').i32(1, 3), make([]byte, 2+24+4)...)
	return append(out.i32(-1, len(records)), records...)
}

// randomBatch returns a record batch with whatever records may have, and the offset after it.
func randomBatch(random *rand.Rand, first int64) ([]byte, int64) {
	some := func() []byte {
		switch random.IntN(6) {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			return []byte(strings.Repeat("x", random.IntN(3000)))
		default:
			return []byte(strings.Repeat("ab", random.IntN(50)))
		}
	}
	var records []byte
	count, delta := random.IntN(40), int64(0)
	for range count {
		stamp, key, value := random.Int64N(2000)-1000, some(), some()
		var headers [][]byte
		for range max(random.IntN(5)-2, 0) {
			headers = append(headers, []byte(strings.Repeat("h", random.IntN(9))), some())
		}
		records = append(records, record(stamp, delta, key, value, headers...)...)
		delta += 1 + int64(random.IntN(3)/2)
	}
	codec := sarama.CompressionCodec(random.IntN(5))
	attributes := int(codec) | random.IntN(2)*logAppendTime
	records = compressed(codec, records)
	if count == 0 {
		records, attributes, delta = nil, 0, 5
	}
	body := batchBody(attributes, delta, random.Int64N(1e12)+1000, random.Int64N(1e12), -1, count, records)
	return withHeader(first, 7, body), first + delta + 1
}

// All that a record has is what sarama makes of it, whatever its compression.
func TestDecodesAsSarama(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random, other, u := rand.New(rand.NewPCG(seed, 1)), newOpinion(t), newUnpacker(defaultMaxBatch)
	for range 100 {
		var records []byte
		first := random.Int64N(1e9)
		for range 1 + random.IntN(5) {
			some := randomBatch
			if random.IntN(3) == 0 {
				some = randomOld
			}
			var b []byte
			b, first = some(random, first)
			records = append(records, b...)
		}
		records = records[:len(records)-random.IntN(2)*random.IntN(len(records))] // the last came in part
		body := answerWith(records)
		want, err := other.decode(body)
		noerr.Must(t, err)
		a, err := readAnswer(&keptAnswer{version: 11, body: body})
		noerr.Must(t, err)
		got, err := decodeAll(u, a)
		noerr.Must(t, err)
		compareMessages(t, got, want)
	}
}

func compareMessages(t *testing.T, got, want map[key][]sarama.ConsumerMessage) {
	t.Helper()
	for k := range want {
		if len(got[k]) != len(want[k]) {
			t.Fatalf("%v: %d messages, sarama has %d", k, len(got[k]), len(want[k]))
		}
		for i := range want[k] {
			if reflect.DeepEqual(&got[k][i], &want[k][i]) { // most are, and it takes less time
				continue
			}
			if got, want := describe(&got[k][i]), describe(&want[k][i]); got != want {
				t.Fatalf("%s\nsarama has\n%s", got, want)
			}
		}
	}
}

// asSarama fails if an answer of version 11 is decoded without error, and not as sarama decodes it.
func asSarama(t *testing.T, u *unpacker, other *opinion, body []byte) {
	t.Helper()
	a, err := readAnswer(&keptAnswer{version: 11, body: body})
	if err != nil {
		return
	}
	got, err := decodeAll(u, a)
	if err != nil {
		return
	}
	for _, p := range a.parts {
		if slices.ContainsFunc(p.batches, func(b recordBatch) bool { return b.count == 0 || b.partial }) {
			return // sarama decompresses what has no record, and looks at counts of records that have not come
		}
	}
	want, err := other.decode(body)
	switch {
	case err != nil && len(got) == 0:
		return // sarama takes no null for lists and records
	case err != nil:
		t.Fatalf("sarama: %v", err)
	}
	for k, messages := range want {
		last := int64(-1)
		for i := range messages {
			if m := &messages[i]; m.Offset <= last || m.Timestamp.UnixMilli() < 0 {
				delete(want, k) // another rule holds for those
				break
			}
			last = messages[i].Offset
		}
	}
	compareMessages(t, got, want)
}

// seeds bounds what go test -fuzz does to make inputs smaller, and returns small ones of what kinds return. For each input that
// runs new code it would try all that is left when a part is removed, for up to a minute: the square of the size, and count none
// of these calls.
func seeds(f *testing.F, kinds ...func(random *rand.Rand, first int64) ([]byte, int64)) (out [][]byte) {
	f.Helper()
	if err := flag.Set("test.fuzzminimizetime", "100x"); err != nil {
		f.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for len(out) < 40 {
		if b, _ := kinds[len(out)%len(kinds)](random, random.Int64N(1000)); len(b) < 500 {
			out = append(out, b)
		}
	}
	return out
}

// Hostile bytes end in an error. What this package reads without one, sarama reads alike.
func FuzzAnswer(f *testing.F) {
	for _, b := range seeds(f, randomBatch, randomOld) {
		f.Add(uint8(11), answerWith(b))
	}
	for _, v := range []int16{5, 7, 12} {
		f.Add(uint8(v), emptyAnswer(make([]byte, 8, 32), v)[8:])
	}
	u, other := newUnpacker(1<<20), newOpinion(f)
	f.Fuzz(func(t *testing.T, version uint8, body []byte) {
		if version == 11 {
			asSarama(t, u, other, body)
		} else if a, err := readAnswer(&keptAnswer{version: 5 + int16(version%8), body: body}); err == nil {
			_, _ = decodeAll(u, a)
		}
	})
}

// Hostile records end in an error, though their checksum is right. body is a record batch from its attributes on.
func FuzzRecords(f *testing.F) {
	for _, b := range seeds(f, randomBatch) {
		f.Add(b[crcFrom:])
	}
	u, other := newUnpacker(1<<20), newOpinion(f)
	f.Fuzz(func(t *testing.T, body []byte) { asSarama(t, u, other, answerWith(withHeader(1000, 7, body))) })
}

// Random changes of an answer, and of records whose checksum is right all the same, end in an error, or are read as sarama reads
// them.
func TestChangedBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random, other, u := rand.New(rand.NewPCG(seed, 1)), newOpinion(t), newUnpacker(1<<20)
	change := func(b []byte) []byte {
		for range 1 + random.IntN(3) {
			switch at := random.IntN(len(b)); random.IntN(4) {
			case 0:
				b[at] = byte(random.Uint32())
			case 1:
				b[at] ^= 1 << random.IntN(8)
			case 2:
				b = slices.Delete(b, at, min(at+1+random.IntN(3), len(b)))
			default:
				b = slices.Insert(b, at, byte(random.Uint32()))
			}
		}
		return b
	}
	for range 200 {
		old, first := randomOld(random, random.Int64N(1000))
		asSarama(t, u, other, change(answerWith(slices.Clone(old))))
		b, _ := randomBatch(random, first)
		asSarama(t, u, other, change(answerWith(append(old, b...))))
		asSarama(t, u, other, answerWith(withHeader(1000, 7, change(b[crcFrom:]))))
	}
}

// The memory that a hostile answer takes is bounded by its size, whatever counts and lengths it claims.
func TestHostileCounts(t *testing.T) {
	const size = 4 << 20
	zeros := make([]byte, size)
	topics := func(version int16, claims ...byte) []byte { // so many topics, each of so many partitions
		out := append(emptyAnswer(make([]byte, 8, 32), version)[8:], zeros...)
		copy(out[10:], claims)
		if version >= flexibleFrom {
			copy(out[11:], claims)
		}
		return out
	}
	u := newUnpacker(1 << 20)
	records := func(claimed uint32, payload []byte) []byte {
		return answerWith(withHeader(0, 7, append(make(wire, 36).i32(int(claimed)), payload...)))
	}
	headers := func(claimed int64) []byte {
		record := binary.AppendVarint([]byte{0, 0, 0, 1, 1}, claimed)
		record = append(record, zeros...)
		return records(1, append(binary.AppendVarint(nil, int64(len(record))), record...))
	}
	for name, c := range map[string]struct {
		version int16
		body    []byte
	}{
		"topics":              {11, topics(11, 0x7f, 0xff, 0xff, 0xff)},
		"as many as fit":      {11, topics(11, 0, 0x0a, 0, 0)},
		"partitions":          {11, topics(11, 0, 0, 0, 1, 0, 0, 0x7f, 0xff, 0xff, 0xff)},
		"partitions that fit": {11, topics(11, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0)},
		"a partition a byte":  {11, topics(11, 0, 0, 0, 1, 0, 0, 0, 0x3d, 0x09, 0)},
		"flexible topics":     {12, topics(12, 0xff, 0xff, 0xff, 0xff, 0x07)},
		"flexible that fit":   {12, topics(12, 0x80, 0x80, 0x40)},
		"records":             {11, records(1<<31-1, zeros)},
		"records below 0":     {11, records(1<<31, zeros)},
		"records that fit":    {11, records(size/8, zeros)},
		"headers":             {11, headers(1 << 40)},
		"headers that fit":    {11, headers(size / 2)},
		"headers below 0":     {11, headers(-5)},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			took := allocated(func() {
				var a *answer
				if a, err = readAnswer(&keptAnswer{version: c.version, body: c.body}); err == nil {
					_, err = decodeAll(u, a)
				}
			})
			if err == nil && name != "headers that fit" {
				t.Error("no error")
			}
			if took > 32*size {
				t.Errorf("%d MB for an answer of 4 MB", took>>20)
			}
		})
	}
}

// A batch that is not as it should be is named with what is wrong.
func TestSpoiltBatches(t *testing.T) {
	good := (&batch{values: vals(3)}).encode()
	change := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		if at >= crcFrom {
			binary.BigEndian.PutUint32(b[17:], checksum(b[crcFrom:]))
		}
		return b
	}
	for name, c := range map[string]struct {
		raw  []byte
		says string
	}{
		"checksum":           {change(17, 1, 2, 3, 4), "CRC"},
		"format":             {change(16, 3), "format 3"},
		"short length":       {change(8, 0, 0, 0, 9), "length"},
		"length below 0":     {change(8, 0xff), "length"},
		"offset below 0":     {change(0, 0xff), "offsets"},
		"offset at the end":  {change(0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "offsets"},
		"last below first":   {change(23, 0xff), "offsets"},
		"count below 0":      {change(57, 0xff), "-16777213 records"},
		"too many records":   {change(60, 4), "do not fit"},
		"too few records":    {change(60, 2), "do not fit"},
		"far too many":       {change(59, 4), "1027 records in"},
		"a short record":     {change(61, 2), "do not fit"},
		"a long record":      {change(61, 200, 200), "do not fit"},
		"a key that is long": {change(65, 120), "do not fit"},
		"a key below -1":     {change(65, 3), "do not fit"},
		"no compression":     {change(22, 7), "no such compression"},
		"wrongly gzip":       {change(22, 1), "gzip"},
		"wrongly zstd":       {change(22, 4), "zstd"},
		"wrongly lz4":        {change(22, 3), "lz4"},
		"wrongly snappy":     {change(22, 2), "snappy"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := readAnswer(&keptAnswer{version: 11, body: answerWith(c.raw)})
			if err == nil {
				_, err = decodeAll(newUnpacker(1<<20), a)
			}
			if _, ok := errors.AsType[*spoiltError](err); !ok || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q in\n%s", err, c.says, hex.Dump(c.raw))
			}
		})
	}
}

// A timestamp below 0 is none, and so is the time; one of a batch that has log-append time is the batch's.
func TestTimestamps(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(2), stamp: -1}, batch{values: vals(2), stamp: -5}, batch{values: vals(1), stamp: 7})
		b, err := next(t, open(t, x, 0, 0, -1), time.Second)
		if err != nil || len(b.Messages) != 5 {
			t.Fatal(b, err)
		}
		for i, want := range []time.Time{{}, time.UnixMilli(0), {}, {}, time.UnixMilli(7)} {
			if got := b.Messages[i].Timestamp; !got.Equal(want) || got.IsZero() != want.IsZero() {
				t.Errorf("message %d: %v, want %v", i, got, want)
			}
		}
	})
}

// A batch larger than what is handed out at once comes in parts, in order, and so do many small ones together.
func TestParts(t *testing.T) {
	for name, batches := range map[string][]batch{
		"one large":  {{values: vals(100_000), gzip: true}},
		"not packed": {{values: vals(100_000)}},
		"many small": many(3000, batch{values: vals(1)}),
		"both":       slices.Concat(many(300, batch{values: vals(1)}), []batch{{values: vals(20_000), gzip: true}}, many(300, batch{values: vals(1)})),
	} {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batches...)
			end := k.log(0).end
			p := open(t, x, 0, 0, -1)
			time.Sleep(time.Second)
			var got []int64
			calls := 0
			for at := int64(0); at < end; calls++ {
				b, err := next(t, p, time.Second)
				noerr.Must(t, err)
				if took := cap(b.Messages) * messageOverhead; took > maxHandOut+messageOverhead {
					t.Errorf("%d bytes for messages at once", took)
				}
				for i := range b.Messages {
					got = append(got, b.Messages[i].Offset)
				}
				at = b.Next
				if lag, behind := p.Lag(); lag != end-at || (behind == 0) != (lag == 0) {
					t.Errorf("lag %d, %v at %d of %d", lag, behind, at, end)
				}
			}
			same(t, got, seq(0, end))
			if most := int(end)*300/maxHandOut + 8; calls > most {
				t.Errorf("%d calls for %d messages", calls, end)
			}
		})
	}
}
