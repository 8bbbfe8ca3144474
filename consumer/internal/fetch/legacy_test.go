package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// oldMessages returns the messages in one that sarama has decoded, as its PartitionConsumer makes them; but where the compressed
// message has log-append time, all in it have its time.
func oldMessages(topic string, id int32, outer *sarama.MessageBlock) (out []sarama.ConsumerMessage) {
	inner := outer.Messages()
	for _, m := range inner {
		offset, timestamp := m.Offset, m.Msg.Timestamp
		if m.Msg.Version >= 1 {
			offset += outer.Offset - inner[len(inner)-1].Offset
		}
		if outer.Msg.LogAppendTime {
			timestamp = outer.Msg.Timestamp
		}
		out = append(out, sarama.ConsumerMessage{
			Topic: topic, Partition: id, Offset: offset, Timestamp: timestamp, BlockTimestamp: outer.Msg.Timestamp, Key: m.Msg.Key, Value: m.Msg.Value,
		})
	}
	return out
}

// randomOld returns messages of a format before record batches, some compressed, and the offset after them.
func randomOld(random *rand.Rand, first int64) ([]byte, int64) {
	some := func() []byte {
		if random.IntN(5) == 0 {
			return nil
		}
		return []byte(strings.Repeat("ab", random.IntN(200)))
	}
	format := byte(random.IntN(2))
	codec := sarama.CompressionCodec(random.IntN(4))
	var set []byte
	stamp, offset, next := random.Int64N(1e12), first, first
	if codec != 0 && format == 1 {
		offset = random.Int64N(3) // those in a compressed message count from some start
	}
	for range 1 + random.IntN(20) {
		set = append(set, legacyMessage(format, offset, 0, stamp+random.Int64N(1000), some(), some())...)
		gap := 1 + int64(random.IntN(5)/4)
		offset, next = offset+gap, next+gap
	}
	if codec == 0 {
		return set, next
	}
	attributes := byte(codec)
	if format == 1 && random.IntN(2) == 0 {
		attributes |= logAppendTime
	}
	return legacyMessage(format, next, attributes, stamp, nil, compressed(codec, set)), next + 1
}

// A limit holds for messages of the old formats, too, and for record batches behind them: one old message must not have sarama
// decode what comes next.
func TestOldBombs(t *testing.T) {
	old := batch{values: vals(5), legacy: true}
	large := slices.Repeat([]string{strings.Repeat("x", 1100)}, 1000)
	for name, bomb := range map[string]batch{
		"old":     {values: large, legacy: true, gzip: true},
		"a batch": {values: large, codec: sarama.CompressionZSTD},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *Options) { o.MaxBatchBytes = 1 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(0, old, bomb, old)
				p := open(t, x, 0, 0, -1)
				got, err := readTo(t, p)
				same(t, got, seq(0, 5))
				var bad *UnreadableError
				if !errors.As(err, &bad) || bad.First != 5 || bad.Next != 1005 || !strings.Contains(err.Error(), "MaxBatchBytes") {
					t.Fatalf("Next: %v, want the batch from 5 to 1005", err)
				}
				p.Close()
				same(t, offsets(t, open(t, x, 0, 1005, -1), 1010), seq(1005, 1010))
			})
		})
	}
}

// A mistake in a compressed message ends the partition at its first message that was not handed out, and reading goes on behind
// it.
func TestSpoiltOldMessages(t *testing.T) {
	good, inner := batch{values: vals(5), legacy: true}, legacyMessage(1, 0, 0, 1, nil, []byte("v"))
	broken := slices.Clone(inner)
	broken[len(broken)-1] ^= 1
	for name, set := range map[string][]byte{
		"not compressed":      []byte("no gzip"),
		"no messages":         zipped(nil),
		"a wrong checksum":    zipped(slices.Concat(inner, broken)),
		"it ends early":       zipped(slices.Concat(inner, inner[:20])),
		"compressed twice":    zipped(legacyMessage(1, 0, 1, 1, nil, zipped(inner))),
		"record batch inside": zipped((&batch{values: vals(1)}).encode()),
		"offsets behind it":   zipped(slices.Concat(legacyMessage(0, 1<<40, 0, 1, nil, nil), legacyMessage(0, 6, 0, 1, nil, nil))),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(0, good, good, good)
				k.change(func() { k.log(0).bytes[1] = legacyMessage(1, 9, 1, 1, nil, set) })
				p := open(t, x, 0, 0, -1)
				got, err := readTo(t, p)
				same(t, got, seq(0, 5))
				var bad *UnreadableError
				if !errors.As(err, &bad) || bad.First != 5 || bad.Next != 10 {
					t.Fatalf("Next: %v, want the message from 5 to 10", err)
				}
				p.Close()
				p = open(t, x, 0, 5, -1)
				if err := p.Opened(t.Context()); !errors.As(err, &bad) || bad.First != 5 || bad.Next != 10 {
					t.Errorf("opened again: %v", err)
				}
				p.Close()
				same(t, offsets(t, open(t, x, 0, 10, -1), 15), seq(10, 15))
			})
		})
	}
}

// The lag has the age of an old message, too.
func TestLagOfOldMessages(t *testing.T) {
	for _, packed := range []bool{false, true} {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(5), legacy: true, gzip: packed})
			p := open(t, x, 0, 0, -1)
			time.Sleep(time.Second)
			if n, age := p.Lag(); n != 5 || age != time.Since(epochTime) {
				t.Errorf("lag %d, %v", n, age)
			}
			b, err := next(t, p, time.Second)
			if err != nil || len(b.Messages) != 5 || b.Messages[4].Headers != nil || !bytes.Equal(b.Messages[4].Key, []byte("k")) || b.LeaderEpoch != -1 {
				t.Errorf("%+v, %v", b, err)
			}
		})
	}
}

// dialed is a connection that a dialer has.
type dialed struct{ net.Conn }

func (d dialed) Dial(string, string) (net.Conn, error) { return d.Conn, nil }

// bySarama returns what a request of sarama's producer has for its only partition.
func bySarama(t *testing.T, request *sarama.ProduceRequest) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	config := testConfig()
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, dialed{client}
	broker := sarama.NewBroker("1:1")
	if err := broker.Open(config); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := broker.Produce(request)
		sent <- err
	}()
	r := reader{rest: make([]byte, 4)}
	if _, err := io.ReadFull(server, r.rest); err != nil {
		t.Fatal(err)
	}
	r.rest = make([]byte, r.int32())
	if _, err := io.ReadFull(server, r.rest); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-sent, broker.Close()); err != nil {
		t.Fatal(err)
	}
	r.take(8)
	r.take(r.length(false)) // the client's id
	if request.Version >= 3 {
		r.take(2) // no transactional id
	}
	r.take(10)
	r.take(r.length(false)) // the topic
	r.take(8)
	records := r.block()
	if r.bad || len(r.rest) > 0 {
		t.Fatal("not the request that was expected")
	}
	return records
}

// Messages of all formats that sarama has encoded come in order, each once, from any offset, in one answer or in several.
func TestFormatsInOneAnswer(t *testing.T) {
	const each = 12 // messages
	var pieces [][]byte
	var bs []batch
	var want []string
	stamp := time.UnixMilli(1e12)
	for i := range 60 {
		base := int64(len(want))
		set, records := &sarama.MessageSet{}, []*sarama.Record{}
		format, codec := int8(i%3), sarama.CompressionCodec(i/3%5)
		if format < 2 {
			codec %= 4 // zstd came later
		}
		for j := range int64(each) {
			key, value := fmt.Appendf(nil, "key %d", base+j), fmt.Appendf(nil, "value %d", base+j)
			m := sarama.ConsumerMessage{Topic: "t", Offset: base + j, Key: key, Value: value, Timestamp: stamp, BlockTimestamp: stamp}
			switch format {
			case 0:
				m.Timestamp, m.BlockTimestamp = time.Time{}, time.Time{}
			case 2:
				m.Headers, m.BlockTimestamp = []*sarama.RecordHeader{{Key: key, Value: value}}, time.Time{}
			}
			want = append(want, describe(&m))
			records = append(records, &sarama.Record{OffsetDelta: j, Key: key, Value: value, Headers: m.Headers})
			offset := base + j
			if format == 1 && codec != 0 {
				offset = j
			}
			set.Messages = append(set.Messages, &sarama.MessageBlock{Offset: offset, Msg: &sarama.Message{Version: format, Key: key, Value: value, Timestamp: stamp}})
		}
		request := &sarama.ProduceRequest{Version: 2}
		switch {
		case format == 2:
			request.Version = 3
			request.AddBatch("t", 0, &sarama.RecordBatch{
				Version: 2, FirstOffset: base, LastOffsetDelta: each - 1, Codec: codec, FirstTimestamp: stamp, MaxTimestamp: stamp, ProducerID: -1, Records: records,
			})
		case codec == 0:
			request.AddSet("t", 0, set)
		default:
			request.AddSet("t", 0, set)
			set = &sarama.MessageSet{Messages: []*sarama.MessageBlock{{Offset: base + each - 1, Msg: &sarama.Message{
				Version: format, Codec: codec, Value: bySarama(t, request), Timestamp: stamp,
			}}}}
			request = &sarama.ProduceRequest{Version: 2}
			request.AddSet("t", 0, set)
		}
		pieces, bs = append(pieces, bySarama(t, request)), append(bs, batch{base: base, last: base + each - 1})
	}
	for _, limit := range []int{1, 64 << 20} {
		inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() {
				l := k.log(0)
				l.batches, l.bytes, l.end = bs, pieces, int64(len(want))
			})
			for from := 0; from < len(want); from += 53 {
				p := open(t, x, 0, int64(from), -1)
				for n := from; n < len(want); {
					b, err := next(t, p, time.Second)
					if err != nil {
						t.Fatal(err)
					}
					for i := range b.Messages {
						if got := describe(&b.Messages[i]); got != want[n] {
							t.Fatalf("from %d: got\n%s\nwant\n%s", from, got, want[n])
						}
						n++
					}
				}
				p.Close()
			}
			if n := len(k.requests()); limit > 1 && n > len(want)/10 {
				t.Errorf("%d requests to read everything %d times", n, 1+len(want)/53)
			}
		})
	}
}
