package differential_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/zktest"
)

// rig is a real Kafka, with an embedded ZooKeeper for groups.
type rig struct {
	t       *testing.T
	kafka   *servers.Kafka
	brokers []string
	admin   sarama.ClusterAdmin
	zk      string
	groups  atomic.Int64 // made so far
}

func newRig(t *testing.T, opts servers.KafkaOptions) *rig {
	t.Helper()
	t.Logf("seed %d", *seed)
	opts.Config = maps.Clone(opts.Config)
	if opts.Config == nil {
		opts.Config = map[string]string{}
	}
	maps.Copy(opts.Config, map[string]string{
		"message.max.bytes":      "8000000",
		"log.cleaner.backoff.ms": "100",
	})
	r := &rig{t: t, kafka: servers.StartKafka(t, opts)}
	r.brokers = r.kafka.Brokers()
	_, r.zk = zktest.Start(t, zktest.Options{TickTime: 200 * time.Millisecond})
	var err error
	if r.admin, err = sarama.NewClusterAdmin(r.brokers, newConfig(sarama.ReadUncommitted)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.admin.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// newConfig is what readers use, but for what a test changes.
func newConfig(isolation sarama.IsolationLevel) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "differential"
	c.Version = sarama.V3_6_0_0
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.IsolationLevel = isolation
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.MaxProcessingTime = time.Second
	c.Consumer.Retry.Backoff = 100 * time.Millisecond
	return c
}

// createTopic makes a topic that keeps its messages whatever their timestamps are; settings are name, value, and so on.
func (r *rig) createTopic(t *testing.T, topic string, partitions int32, settings ...string) {
	t.Helper()
	entries := map[string]*string{"retention.ms": new("-1")}
	for i := 0; i < len(settings); i += 2 {
		entries[settings[i]] = &settings[i+1]
	}
	replicas := int16(min(3, len(r.brokers)))
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replicas, ConfigEntries: entries}
	if err := r.admin.CreateTopic(topic, detail, false); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	r.kafka.WaitTopic(topic, partitions)
}

// producer sends batches: what one call of send gets is one batch for each partition, as far as its size allows.
type producer struct {
	t      *testing.T
	client *kgo.Client
}

func (r *rig) producer(t *testing.T, opts ...kgo.Opt) *producer {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(r.brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ManualFlushing(),
		kgo.ProducerBatchMaxBytes(7 << 20),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.DisableClientMetrics(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &producer{t: t, client: client}
}

func (p *producer) send(records ...*kgo.Record) {
	p.t.Helper()
	if err := p.try(records...); err != nil {
		p.t.Fatalf("produce: %v", err)
	}
}

// try is send that returns the error.
func (p *producer) try(records ...*kgo.Record) error {
	var failed atomic.Pointer[error]
	for _, record := range records {
		p.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.client.Flush(ctx)
	if first := failed.Load(); first != nil {
		err = errors.Join(err, *first)
	}
	return err
}

// begin begins a transaction.
func (p *producer) begin() {
	p.t.Helper()
	if err := p.client.BeginTransaction(); err != nil {
		p.t.Fatal(err)
	}
}

// end commits the transaction or aborts it.
func (p *producer) end(commit kgo.TransactionEndTry) {
	p.t.Helper()
	if err := p.client.EndTransaction(context.Background(), commit); err != nil {
		p.t.Fatal(err)
	}
}

// endKey is the key of the last message of each partition.
var endKey = []byte("the end")

// finish writes the end markers, with the given timestamp.
func (r *rig) finish(t *testing.T, topic string, partitions int32, at time.Time) {
	t.Helper()
	var ends []*kgo.Record
	for id := range partitions {
		ends = append(ends, &kgo.Record{Topic: topic, Partition: id, Key: endKey, Value: []byte("-"), Timestamp: at})
	}
	r.producer(t).send(ends...)
}

// source makes records in which all that a record has is different, and some of it missing.
type source struct {
	random *rand.Rand
	topic  string
	made   int
	at     time.Time // the last timestamp
}

func newSource(topic string) *source {
	return &source{random: random(topic), topic: topic, at: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// records makes n records for a partition.
func (s *source) records(n int, id int32) []*kgo.Record {
	out := make([]*kgo.Record, n)
	for i := range out {
		s.made++
		s.at = s.at.Add(time.Duration(s.random.IntN(3000)-1000) * time.Millisecond)
		out[i] = &kgo.Record{
			Topic: s.topic, Partition: id, Timestamp: s.at,
			Key: s.bytes(20), Value: s.bytes(200), Headers: s.headers(),
		}
	}
	return out
}

// bytes returns null, none, or up to most bytes that compress well.
func (s *source) bytes(most int) []byte {
	switch s.random.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	default:
		text := fmt.Appendf(nil, "%d ", s.made)
		for n := s.random.IntN(most); len(text) < n; {
			text = append(text, text...)
		}
		return text
	}
}

func (s *source) headers() []kgo.RecordHeader {
	var headers []kgo.RecordHeader
	for range max(0, s.random.IntN(6)-2) {
		key := []string{"", "a", "trace", "é"}[s.random.IntN(4)]
		headers = append(headers, kgo.RecordHeader{Key: key, Value: s.bytes(10)})
	}
	return headers
}
