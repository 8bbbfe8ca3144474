package differential_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/test/wait"
)

// topic is what a test has written.
type topic struct {
	name       string
	partitions int32
	committed  int // messages that are visible with ReadCommitted, the ends included
	all        int // with ReadUncommitted
}

// writer writes a topic of the given name.
type writer struct {
	name  string
	write func(t *testing.T, r *rig, name string) topic
}

func writers() []writer {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	all := []writer{
		{"mixed", writeMixed(codecs)},
		{"transactions", writeTransactions},
		{"aborted", writeAborted},
		{"compacted", writeCompacted},
		{"compacted-transactions", writeCompactedTransactions},
		{"oversize", writeOversize},
		{"appended", writeAppended},
		{"deleted", writeDeleted},
		{"empty", writeNothing},
	}
	for name, codec := range codecs {
		all = append(all, writer{name, writeCodec(codec)})
	}
	return all
}

// finished writes the ends and returns the topic.
func (r *rig) finished(t *testing.T, name string, partitions int32, committed, all int) topic {
	t.Helper()
	r.finish(t, name, partitions, time.Now().Add(50*time.Minute)) // Kafka takes what is up to an hour ahead
	return topic{name: name, partitions: partitions, committed: committed + int(partitions), all: all + int(partitions)}
}

// writeCodec writes batches of one record, of some, and of thousands.
func writeCodec(codec kgo.CompressionCodec) func(t *testing.T, r *rig, name string) topic {
	return func(t *testing.T, r *rig, name string) topic {
		const partitions = 2
		r.createTopic(t, name, partitions)
		p, s := r.producer(t, kgo.ProducerBatchCompression(codec)), newSource(name)
		for id := range int32(partitions) {
			for range more(10, 100) {
				p.send(s.records(1, id)...)
				p.send(s.records(1+s.random.IntN(100), id)...)
			}
			p.send(s.records(3000, id)...)
			p.send(s.records(10, id)...)
		}
		return r.finished(t, name, partitions, s.made, s.made)
	}
}

// writeMixed writes batches of all codecs by several producers in turn.
func writeMixed(codecs map[string]kgo.CompressionCodec) func(t *testing.T, r *rig, name string) topic {
	return func(t *testing.T, r *rig, name string) topic {
		r.createTopic(t, name, 1)
		s := newSource(name)
		var ps []*producer
		for _, codec := range codecs {
			ps = append(ps, r.producer(t, kgo.ProducerBatchCompression(codec)))
		}
		for range more(50, 500) {
			ps[s.random.IntN(len(ps))].send(s.records(1+s.random.IntN(20), 0)...)
		}
		return r.finished(t, name, 1, s.made, s.made)
	}
}

// writeTransactions writes transactions of several producers that overlap, some of them aborted, with messages of others in
// between.
func writeTransactions(t *testing.T, r *rig, name string) topic {
	const partitions = 2
	r.createTopic(t, name, partitions)
	s := newSource(name)
	committed, all := r.transact(t, s, partitions)
	return r.finished(t, name, partitions, committed, all)
}

// transact writes random transactions and returns how many messages count in the end, and how many were written.
func (r *rig) transact(t *testing.T, s *source, partitions int32) (committed, all int) {
	t.Helper()
	plain := r.producer(t)
	txs := make([]*producer, 3)
	open := make([]int, len(txs)) // messages of the open transaction, or -1
	for i := range txs {
		txs[i] = r.producer(t, kgo.TransactionalID(fmt.Sprintf("%s-%d", s.topic, i)))
		open[i] = -1
	}
	end := func(i int, commit kgo.TransactionEndTry) {
		txs[i].end(commit)
		if commit {
			committed += open[i]
		}
		open[i] = -1
	}
	for range more(100, 1000) {
		i, id := s.random.IntN(len(txs)+1), s.random.Int32N(partitions)
		records := s.records(1+s.random.IntN(10), id)
		switch {
		case i == len(txs):
			plain.send(records...)
			committed += len(records)
			all += len(records)
		case open[i] > 0 && s.random.IntN(3) == 0:
			end(i, kgo.TransactionEndTry(s.random.IntN(2) == 0))
		default:
			if open[i] < 0 {
				txs[i].begin()
				open[i] = 0
			}
			txs[i].send(records...)
			open[i] += len(records)
			all += len(records)
		}
	}
	for i := range txs {
		if open[i] >= 0 {
			end(i, i == 0)
		}
	}
	return committed, all
}

// writeAborted writes long runs of messages that were aborted: at the start, and before the end.
func writeAborted(t *testing.T, r *rig, name string) topic {
	r.createTopic(t, name, 1)
	s := newSource(name)
	tx, plain := r.producer(t, kgo.TransactionalID(name)), r.producer(t)
	abort := func() {
		for range 5 {
			tx.begin()
			tx.send(s.records(1000, 0)...)
			tx.end(kgo.TryAbort)
		}
	}
	abort()
	plain.send(s.records(100, 0)...)
	abort()
	return r.finished(t, name, 1, 100, s.made)
}

// compacts are the settings of a topic in which only the newest message of a key stays, and each batch has a segment.
func compacts() []string {
	return []string{
		"cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001",
		"segment.index.bytes", "65536",
	}
}

// keyed gives the records keys out of few. Their timestamp is so much later than the call before's, and than the clock's, which
// markers of transactions have, that they begin a segment. It returns the keys.
func (s *source) keyed(records []*kgo.Record) (keys []string) {
	if now := time.Now(); s.at.Before(now) {
		s.at = now
	}
	s.at = s.at.Truncate(20 * time.Second).Add(20 * time.Second)
	for _, record := range records {
		record.Key = fmt.Appendf(nil, "k%d", s.random.IntN(50))
		record.Timestamp = s.at
		keys = append(keys, string(record.Key))
	}
	return keys
}

// writeCompacted writes a topic with gaps: within batches, of whole batches, and batches without records.
func writeCompacted(t *testing.T, r *rig, name string) topic {
	r.createTopic(t, name, 1, compacts()...)
	s := newSource(name)
	ps := []*producer{
		r.producer(t), r.producer(t, kgo.ProducerBatchCompression(kgo.Lz4Compression())),
		r.producer(t), // sends one batch alone, all of which goes
	}
	left := map[string]bool{}
	for i := range more(30, 100) {
		records := s.records(5, 0)
		for _, key := range s.keyed(records) {
			left[key] = true
		}
		ps[i%2].send(records...)
		if i == 10 {
			records = s.records(1, 0)
			s.keyed(records)
			records[0].Key = []byte("k0")
			ps[2].send(records...)
		}
	}
	last := s.records(1, 0)
	s.keyed(last)
	last[0].Key = []byte("k0")
	left["k0"] = true
	ps[0].send(last...)
	visible := r.finished(t, name, 1, len(left), len(left))
	r.waitCleaned(t, visible)
	return visible
}

// writeCompactedTransactions writes a topic with gaps in which some transactions were aborted.
func writeCompactedTransactions(t *testing.T, r *rig, name string) topic {
	r.createTopic(t, name, 1, compacts()...)
	s := newSource(name)
	tx := r.producer(t, kgo.TransactionalID(name))
	left := map[string]bool{}
	for i := range more(30, 100) {
		tx.begin()
		records := s.records(5, 0)
		keys := s.keyed(records)
		tx.send(records...)
		if i%3 == 0 {
			tx.end(kgo.TryAbort)
			continue
		}
		tx.end(kgo.TryCommit)
		for _, key := range keys {
			left[key] = true
		}
	}
	visible := r.finished(t, name, 1, len(left), len(left))
	r.waitCleaned(t, visible)
	return visible
}

// waitCleaned waits until Kafka has thrown away what it may of a compacted topic.
func (r *rig) waitCleaned(t *testing.T, visible topic) {
	t.Helper()
	found := 0
	wait.Until(t, time.Minute, func() bool {
		what := reading{newConfig(sarama.ReadUncommitted), visible.from(oldest)}
		b := r.start(t, reference, what, nil)
		b.wait()
		found = b.total()
		return found <= visible.all
	}, func() string { return fmt.Sprintf("%s has %d messages, want %d", visible.name, found, visible.all) })
}

// from returns all partitions with one start.
func (w topic) from(start int64) map[partition]int64 {
	starts := map[partition]int64{}
	for id := range w.partitions {
		starts[partition{w.name, id}] = start
	}
	return starts
}

// writeOversize writes messages that are far larger than what is asked for at a time.
func writeOversize(t *testing.T, r *rig, name string) topic {
	r.createTopic(t, name, 1)
	s := newSource(name)
	p := r.producer(t)
	for _, size := range []int{100 << 10, 5 << 20, 1, 5 << 20} {
		p.send(s.records(10, 0)...)
		large := s.records(1, 0)
		large[0].Value = make([]byte, size)
		for i := range large[0].Value {
			large[0].Value[i] = byte(s.random.Uint32())
		}
		p.send(large...)
	}
	return r.finished(t, name, 1, s.made, s.made)
}

// writeAppended writes messages that get their timestamps from the broker.
func writeAppended(t *testing.T, r *rig, name string) topic {
	r.createTopic(t, name, 1, "message.timestamp.type", "LogAppendTime")
	s := newSource(name)
	plain, packed := r.producer(t), r.producer(t, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	for range 20 {
		plain.send(s.records(3, 0)...)
		packed.send(s.records(20, 0)...)
	}
	return r.finished(t, name, 1, s.made, s.made)
}

// writeDeleted deletes the first messages, up to the middle of a batch.
func writeDeleted(t *testing.T, r *rig, name string) topic {
	const deleted = 137
	r.createTopic(t, name, 1)
	s := newSource(name)
	p := r.producer(t, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	for range 3 {
		p.send(s.records(100, 0)...)
	}
	if err := r.admin.DeleteRecords(name, map[int32]int64{0: deleted}); err != nil {
		t.Fatal(err)
	}
	return r.finished(t, name, 1, s.made-deleted, s.made-deleted)
}

// writeNothing writes no message but the end.
func writeNothing(t *testing.T, r *rig, name string) topic {
	r.createTopic(t, name, 3)
	return r.finished(t, name, 3, 0, 0)
}
