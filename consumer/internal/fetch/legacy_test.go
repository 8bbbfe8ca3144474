package fetch

import (
	"bytes"
	"math/rand/v2"
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
	for name, bomb := range map[string]batch{
		"old":     {values: wide(1000, 1100), legacy: true, gzip: true},
		"a batch": {values: wide(1000, 1100), codec: sarama.CompressionZSTD},
	} {
		subtest(t, name, func(o *Options) { o.MaxBatchBytes = 1 << 20 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, old, bomb, old)
			if err := stops(t, x, 0, -1, 5, 1005); !strings.Contains(err.Error(), "MaxBatchBytes") {
				t.Error(err)
			}
			same(t, offsets(t, open(t, x, 0, 1005, -1), 1010), seq(1005, 1010))
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
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, good, good, good)
			k.change(func() { k.log(0).bytes[1] = legacyMessage(1, 9, 1, 1, nil, set) })
			stops(t, x, 0, -1, 5, 10)
			stopsAtOnce(t, x, 5, 10)
			same(t, offsets(t, open(t, x, 0, 10, -1), 15), seq(10, 15))
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
