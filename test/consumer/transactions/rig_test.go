package transactions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

// rig is a Kafka and a ZooKeeper, which tests share.
type rig struct {
	zookeeper, brokers []string
}

// onEach runs a test on kfake and on each version of Kafka. These start at the same time: most of a start is waiting.
func onEach(t *testing.T, test func(*testing.T, *rig)) {
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		kafka, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(kafka.Close)
		test(t, newRig(t, kafka.ListenAddrs()))
	})
	for _, version := range []string{servers.Kafka4, servers.Kafka3} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, servers.StartKafka(t, servers.KafkaOptions{Version: version}).Brokers()))
		})
	}
}

func newRig(t *testing.T, brokers []string) *rig {
	t.Helper()
	_, zk := zktest.Start(t, zktest.Options{TickTime: 200 * time.Millisecond})
	return &rig{zookeeper: []string{zk}, brokers: brokers}
}

// scene is a topic, a group that consumes it, and a topic for results, for one test.
type scene struct {
	*rig
	t     *testing.T
	name  string
	sent  []string // the messages
	admin sarama.ClusterAdmin
	end   map[int32]int64 // of the partitions of the topic
}

func (r *rig) newAdmin(t *testing.T) sarama.ClusterAdmin {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(r.brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

// newScene makes topics of a number of partitions, and as many messages in each.
func (r *rig) newScene(t *testing.T, partitions int32, messages int) *scene {
	t.Helper()
	name := strings.NewReplacer("/", "-", "#", "-").Replace(t.Name()) // once for each subtest
	s := &scene{rig: r, t: t, name: name, end: map[int32]int64{}}
	for p := range partitions {
		s.end[p] = 0
	}
	s.admin = r.newAdmin(t)
	for topic, n := range map[string]int32{s.in(): partitions, s.out(): 1} {
		if err := s.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: n, ReplicationFactor: 1}, false); err != nil {
			t.Fatal(err)
		}
	}
	s.produce(messages)
	return s
}

// produce writes as many messages more to each partition.
func (s *scene) produce(messages int) {
	s.t.Helper()
	var records []*kgo.Record
	for p, end := range s.end {
		for i := range int64(messages) {
			value := fmt.Sprintf("%d/%d", p, end+i)
			s.sent = append(s.sent, value)
			records = append(records, &kgo.Record{Topic: s.in(), Partition: p, Value: []byte(value)})
		}
		s.end[p] += int64(messages)
	}
	if err := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner())).ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) in() string  { return s.name + ".in" }
func (s *scene) out() string { return s.name + ".out" }

// client returns a client of the Kafka, which is closed at the test's end.
func (s *scene) client(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(s.brokers...), kgo.MaxVersions(kversion.V3_6_0()),
		kgo.MetadataMinAge(100*time.Millisecond), // what fails is tried again with new metadata
		kgo.UnknownTopicRetries(-1))...)          // a broker may not know yet what was created
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// settings returns the settings of a program of the scene.
func (s *scene) settings(name string) settings {
	return settings{
		ZooKeeper: s.zookeeper, Brokers: s.brokers, Name: name, Group: s.name, In: s.in(), Out: s.out(), Way: byMetadata, Fence: true,
	}
}

// start runs a program until stop is called, which fails the test if the program has failed.
func (s *scene) start(set settings) (p *program, stop func()) {
	s.t.Helper()
	p = &program{settings: set}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	ended := false
	stop = func() {
		s.t.Helper()
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("%s: %v", set.Name, err)
		}
	}
	s.t.Cleanup(stop)
	return p, stop
}

// stored returns the group's offset of a partition, and the text stored with it; -1 if there is none.
func (s *scene) stored(p int32) (offset int64, text string) {
	s.t.Helper()
	found, err := s.admin.ListConsumerGroupOffsets(s.name, map[string][]int32{s.in(): {p}})
	if errors.Is(err, sarama.ErrGroupIDNotFound) || errors.Is(err, sarama.ErrOffsetsLoadInProgress) {
		return -1, ""
	}
	if err != nil {
		s.t.Fatal(err)
	}
	block := found.GetBlock(s.in(), p)
	if block == nil {
		return -1, ""
	}
	return block.Offset, block.Metadata
}

// awaitEnd waits until the group's offsets are the ends of the partitions.
func (s *scene) awaitEnd() {
	s.t.Helper()
	wait.Until(s.t, time.Minute, func() bool {
		for p, end := range s.end {
			if at, _ := s.stored(p); at != end {
				return false
			}
		}
		return true
	}, func() string {
		at, _ := s.stored(0)
		return fmt.Sprintf("the partitions are processed; of the first one %d is stored", at)
	})
}

// results returns the results that a reader of committed messages sees, sorted.
func (s *scene) results() []string {
	s.t.Helper()
	const last = "last"
	client := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.out(): {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond)) // Kafka does not answer at once when a transaction ends
	if err := client.ProduceSync(s.t.Context(), &kgo.Record{Topic: s.out(), Value: []byte(last)}).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute) // an open transaction holds readers up
	defer cancel()
	var all []string
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			s.t.Fatalf("read the results: %v", err)
		}
		for _, r := range fetches.Records() {
			if string(r.Value) == last {
				slices.Sort(all)
				return all
			}
			all = append(all, string(r.Value))
		}
	}
}

// onceEach fails the test unless the result of each message is there exactly once.
func (s *scene) onceEach() {
	s.t.Helper()
	got, want := s.results(), slices.Sorted(slices.Values(s.sent))
	if !slices.Equal(got, want) {
		s.t.Errorf("%d results for %d messages:\n%v", len(got), len(want), got)
	}
}

// zombie returns a producer with the transactional id of partition 0, in a transaction with the result of its first message and
// the offset after it.
func (s *scene) zombie(set settings) sarama.SyncProducer {
	s.t.Helper()
	p := &program{settings: set}
	z, err := newProducer(s.brokers, p.transactionalID(s.in(), 0))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = z.Close() })
	if err := z.BeginTxn(); err != nil {
		s.t.Fatal(err)
	}
	if _, _, err := z.SendMessage(&sarama.ProducerMessage{Topic: s.out(), Value: sarama.StringEncoder(s.sent[0])}); err != nil {
		s.t.Fatal(err)
	}
	next := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: 1}}
	if err := z.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{s.in(): next}, s.name); err != nil {
		s.t.Fatal(err)
	}
	return z
}

// pending leaves an offset of partition 0 in a transaction of the partition's transactional id that does not end.
func (s *scene) pending(set settings, offset int64) {
	s.t.Helper()
	id := (&program{settings: set}).transactionalID(s.in(), 0)
	c := s.client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	producer, epoch, err := c.ProducerID(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer, epoch, s.name
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = id, producer, epoch, s.name
	one := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	one.Offset = offset
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: s.in(), Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{one}}}
	wait.Until(s.t, time.Minute, func() bool { // Kafka makes its topics of transactions and offsets at the first request
		added, err := add.RequestWith(s.t.Context(), c)
		if err != nil || added.ErrorCode != 0 {
			return false
		}
		resp, err := commit.RequestWith(s.t.Context(), c)
		return err == nil && resp.Topics[0].Partitions[0].ErrorCode == 0
	}, func() string { return "the offset is in the transaction" })
}
