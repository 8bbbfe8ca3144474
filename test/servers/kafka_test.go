package servers_test

import (
	"fmt"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers"
)

func TestKafkaServes(t *testing.T) {
	for _, version := range []string{servers.Kafka4, servers.Kafka3} {
		t.Run(version, func(t *testing.T) {
			kafka := servers.StartKafka(t, servers.KafkaOptions{Version: version})
			roundTrip(t, kafka)
			brokers := kafka.Brokers()
			kafka.Restart()
			if got := kafka.Brokers(); got[0] != brokers[0] {
				t.Errorf("Brokers() was %v before the restart and is %v now", brokers, got)
			}
			kafka.WaitTopic("t", 3)
		})
	}
}

func TestKafkaClusterOutlivesABroker(t *testing.T) {
	kafka := servers.StartKafka(t, servers.KafkaOptions{Brokers: 3})
	kafka.CreateTopic("before", 3)
	kafka.Nodes()[0].Kill()
	kafka.Nodes()[0].Start()
	kafka.Nodes()[0].WaitReady()
	roundTrip(t, kafka)
}

// roundTrip sends a message to each partition of a new topic and reads it back.
func roundTrip(t *testing.T, kafka *servers.Kafka) {
	t.Helper()
	const partitions = 3
	kafka.CreateTopic("t", partitions)
	config := sarama.NewConfig()
	config.Version = sarama.V3_9_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = 100 // a new topic's leader may be unknown for a moment
	client, err := sarama.NewClient(kafka.Brokers(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	for p := range int32(partitions) {
		want := fmt.Sprintf("message %d", p)
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "t", Partition: p, Value: sarama.StringEncoder(want)}); err != nil {
			t.Fatal(err)
		}
		pc, err := consumer.ConsumePartition("t", p, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case m := <-pc.Messages():
			if string(m.Value) != want {
				t.Errorf("partition %d: read %q, want %q", p, m.Value, want)
			}
		case <-t.Context().Done():
			t.Fatalf("partition %d: nothing to read", p)
		}
		if err := pc.Close(); err != nil {
			t.Error(err)
		}
	}
}
