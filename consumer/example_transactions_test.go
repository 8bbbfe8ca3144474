package consumer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// A whole program that writes an invoice for each order, exactly once for readers with sarama.ReadCommitted. An invoice and the
// offset of its order are committed in one transaction. The partition's producer is made by Fence, before the offset is read that
// the partition starts at: a former owner commits nothing from then on. docs/transactions.md says more.
func ExampleGroup_Consume_transactions() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zookeeper := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	kafka := []string{"kafka1:9092", "kafka2:9092"}
	if err := writeInvoices(ctx, zookeeper, kafka); err != nil {
		log.Fatal(err)
	}
}

func writeInvoices(ctx context.Context, zookeeper, kafka []string) error {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false // transactions commit them
	b := &biller{kafka: kafka}
	group, err := consumer.NewGroup(zookeeper, kafka, "billing", consumer.Options{Config: config, StartAt: consumer.Earliest, Fence: b.fence})
	if err != nil {
		return err
	}
	defer group.Close()
	for err == nil && ctx.Err() == nil {
		err = group.Consume(ctx, []string{"orders"}, b)
	}
	return err
}

// biller is the handler.
type biller struct {
	kafka     []string
	producers sync.Map // of transactional ids to sarama.SyncProducer: those that no ConsumeClaim has taken yet
}

// transactionalID returns the id of a partition's producer, which is the same in all processes.
func transactionalID(topic string, partition int32) string {
	return fmt.Sprintf("billing-%s-%d", topic, partition)
}

// fence makes the producer of a partition. Kafka ends the transaction of the one before, and takes nothing from it any more.
func (b *biller) fence(_ context.Context, topic string, partition int32) error {
	id := transactionalID(topic, partition)
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = id
	producer, err := sarama.NewSyncProducer(b.kafka, config)
	if err != nil {
		return err
	}
	if unused, ok := b.producers.Swap(id, producer); ok { // the last opening has failed
		_ = unused.(sarama.SyncProducer).Close()
	}
	return nil
}

func (b *biller) Setup(sarama.ConsumerGroupSession) error { return nil }

func (b *biller) Cleanup(sarama.ConsumerGroupSession) error {
	for id, unused := range b.producers.Range {
		b.producers.Delete(id)
		_ = unused.(sarama.SyncProducer).Close()
	}
	return nil
}

func (b *biller) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	made, _ := b.producers.LoadAndDelete(transactionalID(c.Topic(), c.Partition()))
	producer := made.(sarama.SyncProducer) // by fence
	defer producer.Close()                 // a transaction that is open still ends when the partition is fenced next
	next := c.InitialOffset()
	idle := time.NewTicker(24 * time.Hour) // Kafka forgets an offset that nobody commits for 7 days
	defer idle.Stop()
	for {
		var invoices []*sarama.ProducerMessage // more than one order in a transaction costs less
		select {
		case order, ok := <-c.Messages():
			if !ok {
				return nil
			}
			invoices = append(invoices, &sarama.ProducerMessage{Topic: "invoices", Value: sarama.StringEncoder("for " + string(order.Value))})
			next = order.Offset + 1
		case <-idle.C:
		}
		if err := commit(producer, s, c, next, invoices); err != nil {
			return err // the partition is opened again, at this order; another producer made here would let a former owner go on
		}
	}
}

// commit writes messages and the offset of the next order in one transaction.
func commit(p sarama.SyncProducer, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, next int64, messages []*sarama.ProducerMessage) error {
	if err := p.BeginTxn(); err != nil {
		return err
	}
	if err := p.SendMessages(messages); err != nil {
		return err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{c.Topic(): {{Partition: c.Partition(), Offset: next}}}
	if err := p.AddOffsetsToTxnWithGroupMetadata(offsets, sarama.NewConsumerGroupMetadataFromSession(s, "billing", nil)); err != nil {
		return err
	}
	return p.CommitTxn()
}
