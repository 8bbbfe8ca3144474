package realkafka_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// commitInTransaction stores an offset of the group as a program does that writes what it has made of the messages in the same
// transaction.
func (r *rig) commitInTransaction(p int32, offset int64) {
	r.t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = r.group
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(r.brokers, config)
	if err != nil {
		r.t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		r.t.Fatal(err)
	}
	err = producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{r.topic: {{Partition: p, Offset: offset}}}, r.group)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := producer.CommitTxn(); err != nil {
		r.t.Fatal(err)
	}
}

// An offset that a transaction has stored is not lowered by the commits that the owner repeats.
func TestOffsetsOfTransactionsStay(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		r := sharedRig(t, version, 1)
		a := r.member("a")
		until(t, "the partition is open", func() bool { return a.open.Load() == 1 })
		opened := time.Now()
		r.commitInTransaction(0, 50)
		until(t, "the transaction is committed", func() bool { return r.committed(0) == 50 })
		until(t, "the first repeat is over", func() bool { return time.Since(opened) > 7*time.Second })
		if got := r.committed(0); got != 50 {
			t.Errorf("committed %d after the first repeat, want 50", got)
		}
		a.leave()
		if got := r.committed(0); got != 50 {
			t.Errorf("committed %d after the release, want 50", got)
		}
	})
}

// A group that Kafka's tools delete while it consumes has its offsets again when its partitions are released.
func TestDeletedGroupIsRestored(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := sharedRig(t, version, n)
		r.produce(10, ids(n)...)
		a := r.member("a")
		until(t, "all messages", func() bool { return a.count.Load() == 10*n })
		a.leave()
		b := r.member("b")
		until(t, "all partitions are open", func() bool { return b.open.Load() == n })
		if err := r.admin().DeleteConsumerGroup(r.group); err != nil {
			t.Fatal(err)
		}
		until(t, "the offsets are gone", func() bool { return r.committed(0) == -1 })
		b.leave()
		for p := range int32(n) {
			if got := r.committed(p); got != 10 {
				t.Errorf("%s:%d: committed %d, want 10", r.topic, p, got)
			}
		}
	})
}

// A group that starts at the end reads nothing old, but a partition that the topic gets later from its first message, whichever
// of two members opens which partition first.
func TestNewPartitionsFromLatest(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := sharedRig(t, version, n)
		r.config = byDefault()
		r.config.Metadata.RefreshFrequency = time.Second
		r.produce(10, ids(n)...)
		a, b := r.member("a"), r.member("b")
		until(t, "all partitions are open", func() bool { return shared(n, a, b) })
		if err := r.admin().CreatePartitions(r.topic, n+2, nil, false); err != nil {
			t.Fatal(err)
		}
		r.kafka.WaitTopic(r.topic, n+2)
		r.produce(10, n, n+1)
		until(t, "all of the new partitions", func() bool { return total(a, b) >= 20 })
		leave(a, b)
		if got := total(a, b); got != 20 {
			t.Errorf("%d messages were read, want the 20 of the new partitions", got)
		}
	})
}
