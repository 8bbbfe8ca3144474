package realkafka_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/servers"
)

func (r *rig) admin() sarama.ClusterAdmin {
	r.t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	a, err := sarama.NewClusterAdmin(r.brokers, config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = a.Close() })
	return a
}

// committed returns what Kafka has for a partition of the group, -1 when nothing.
func committed(t *testing.T, a sarama.ClusterAdmin, p int32) int64 {
	t.Helper()
	resp, err := a.ListConsumerGroupOffsets("g", map[string][]int32{topic: {p}})
	if err != nil {
		t.Fatal(err)
	}
	b := resp.GetBlock(topic, p)
	if b == nil || b.Err != sarama.ErrNoError {
		t.Fatalf("%s:%d: %+v", topic, p, b)
	}
	return b.Offset
}

// commitInTransaction stores an offset of the group as a program does that writes what it has made of the messages in the same
// transaction.
func (r *rig) commitInTransaction(p int32, offset int64) {
	r.t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = "x"
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
	err = producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: p, Offset: offset}}}, "g")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := producer.CommitTxn(); err != nil {
		r.t.Fatal(err)
	}
}

// An offset that a transaction has stored is not lowered by the commits that the owner repeats.
func TestOffsetsOfTransactionsStay(t *testing.T) {
	longer(t, func(t *testing.T, version string) {
		r := newRig(t, servers.KafkaOptions{Version: version}, 1)
		a := r.member("a")
		until(t, "the partition is open", func() bool { return a.open.Load() == 1 })
		opened := time.Now()
		admin := r.admin()
		r.commitInTransaction(0, 50)
		until(t, "the transaction is committed", func() bool { return committed(t, admin, 0) == 50 })
		until(t, "the first repeat is over", func() bool { return time.Since(opened) > 7*time.Second })
		if got := committed(t, admin, 0); got != 50 {
			t.Errorf("committed %d after the first repeat, want 50", got)
		}
		a.leave()
		if got := committed(t, admin, 0); got != 50 {
			t.Errorf("committed %d after the release, want 50", got)
		}
	})
}

// A group that Kafka's tools delete while it consumes has its offsets again when its partitions are released.
func TestDeletedGroupIsRestored(t *testing.T) {
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := newRig(t, servers.KafkaOptions{Version: version}, n)
		r.produce(10, ids(n)...)
		a := r.member("a")
		until(t, "all messages", func() bool { return a.count.Load() == 10*n })
		a.leave()
		b := r.member("b")
		until(t, "all partitions are open", func() bool { return b.open.Load() == n })
		admin := r.admin()
		if err := admin.DeleteConsumerGroup("g"); err != nil {
			t.Fatal(err)
		}
		until(t, "the offsets are gone", func() bool { return committed(t, admin, 0) == -1 })
		began := time.Now()
		b.leave()
		t.Attr("leaving", time.Since(began).String())
		for p := range int32(n) {
			if got := committed(t, admin, p); got != 10 {
				t.Errorf("%s:%d: committed %d, want 10", topic, p, got)
			}
		}
	})
}

// From Latest, a partition that the topic gets is read from its first message, and the group's first start reads nothing old,
// whichever of two members opens which partition first.
func TestNewPartitionsFromLatest(t *testing.T) {
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := newRig(t, servers.KafkaOptions{Version: version}, n)
		r.from, r.config = consumer.Latest, memberConfig()
		r.config.Metadata.RefreshFrequency = time.Second
		r.produce(10, ids(n)...)
		a, b := r.member("a"), r.member("b")
		until(t, "all partitions are open", func() bool { return a.open.Load() == n/2 && b.open.Load() == n/2 })
		if err := r.admin().CreatePartitions(topic, n+2, nil, false); err != nil {
			t.Fatal(err)
		}
		r.produce(10, n, n+1)
		until(t, "all of the new partitions", func() bool { return a.count.Load()+b.count.Load() >= 20 })
		a.leave()
		b.leave()
		if got := a.count.Load() + b.count.Load(); got != 20 {
			t.Errorf("%d messages were read, want the 20 of the new partitions", got)
		}
	})
}
