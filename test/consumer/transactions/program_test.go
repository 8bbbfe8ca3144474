package transactions_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// The ways in which offsets get into a transaction.
const (
	byMessage  = "AddMessageToTxn"
	byMetadata = "AddMessageToTxnWithGroupMetadata"
	byOffsets  = "AddOffsetsToTxnWithGroupMetadata"
)

// settings of a program. Those that are exported can be given to a process.
type settings struct {
	ZooKeeper, Brokers []string
	Name, Group        string
	In, Out            string // topics; Out has one partition
	Way                string
	Fence              bool   // else producers are made in ConsumeClaim, as in sarama's example
	Salt               string // makes transactional ids the program's own; "" for what is right
	AbortEvery         int64  // the first transaction of each such offset is aborted; 0 for none

	fencing  func(made func() error) error        // is called by Fence, and makes the producer by made; nil for made alone
	midway   func(*sarama.ConsumerMessage)        // is called in the transaction, when the result is written and its offset is not; nil for nothing
	after    func(*sarama.ConsumerMessage, error) // is called with what came of a message's transaction; nil for nothing
	observer func(consumer.Event)
}

// metadata is the text that transactions store with an offset.
const metadata = "in a transaction"

// program writes a result to Out for each message of In.
type program struct {
	settings
	producers sync.Map // of partitions' numbers to sarama.SyncProducer: those made by Fence and not taken yet

	mu     sync.Mutex
	errs   []error // of transactions that could not be repeated
	resets int
}

// transactionalID returns the id of a partition's producer.
func (p *program) transactionalID(topic string, partition int32) string {
	return fmt.Sprintf("%s-%s-%d%s", p.Group, topic, partition, p.Salt)
}

// newProducer returns a producer with a transactional id. It has fenced off the one before, and ended its transaction.
func newProducer(brokers []string, id string) (sarama.SyncProducer, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = id
	return sarama.NewSyncProducer(brokers, config)
}

// run consumes until ctx ends.
func (p *program) run(ctx context.Context) error {
	zk, err := session.Start(ctx, p.ZooKeeper, session.Options{Timeout: 3 * time.Second, MinSessionTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	opts := consumer.Options{Name: p.Name, Config: config, StartAt: consumer.Earliest, Observer: p.observer}
	if p.Fence {
		opts.Fence = p.fence
	}
	group, err := consumer.New(zk, p.Brokers, p.Group, opts)
	for err == nil && ctx.Err() == nil {
		err = group.Consume(ctx, []string{p.In}, p)
	}
	if errors.Is(err, context.Canceled) {
		err = nil // stopped before the call
	}
	if group != nil {
		err = errors.Join(err, group.Close())
	}
	return errors.Join(err, zk.Close(context.WithoutCancel(ctx)))
}

// fence makes the producer of a partition.
func (p *program) fence(_ context.Context, topic string, partition int32) error {
	made := func() error {
		producer, err := newProducer(p.Brokers, p.transactionalID(topic, partition))
		if err != nil {
			return err
		}
		if old, ok := p.producers.Swap(partition, producer); ok {
			return old.(sarama.SyncProducer).Close()
		}
		return nil
	}
	if p.fencing != nil {
		return p.fencing(made)
	}
	return made()
}

// producer returns the producer that Fence has made for a partition, or makes it.
func (p *program) producer(topic string, partition int32) (sarama.SyncProducer, error) {
	if made, ok := p.producers.LoadAndDelete(partition); ok {
		return made.(sarama.SyncProducer), nil
	}
	return newProducer(p.Brokers, p.transactionalID(topic, partition))
}

func (p *program) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup closes the producers of partitions that were claimed and not consumed.
func (p *program) Cleanup(sarama.ConsumerGroupSession) error {
	var errs []error
	p.producers.Range(func(partition, producer any) bool {
		p.producers.Delete(partition)
		errs = append(errs, producer.(sarama.SyncProducer).Close())
		return true
	})
	return errors.Join(errs...)
}

func (p *program) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	producer, err := p.producer(c.Topic(), c.Partition())
	if err != nil {
		return err
	}
	defer producer.Close()
	for m := range c.Messages() {
		err := p.process(producer, s, m)
		if p.after != nil {
			p.after(m, err)
		}
		if err != nil {
			p.mu.Lock()
			p.errs = append(p.errs, err)
			p.mu.Unlock()
			return err
		}
	}
	return nil
}

// process writes the result of a message in a transaction, after one that it aborts when that is asked for.
func (p *program) process(producer sarama.SyncProducer, s sarama.ConsumerGroupSession, m *sarama.ConsumerMessage) error {
	if p.AbortEvery > 0 && m.Offset%p.AbortEvery == 0 {
		if err := errors.Join(p.write(producer, s, m), producer.AbortTxn()); err != nil {
			return err
		}
		s.ResetOffset(m.Topic, m.Partition, m.Offset, "") // as sarama's example does
		p.mu.Lock()
		p.resets++
		p.mu.Unlock()
	}
	if err := p.write(producer, s, m); err != nil {
		return err
	}
	return producer.CommitTxn()
}

// write begins a transaction, and puts the result of a message and the message's offset into it.
func (p *program) write(producer sarama.SyncProducer, s sarama.ConsumerGroupSession, m *sarama.ConsumerMessage) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: p.Out, Value: sarama.ByteEncoder(m.Value)}); err != nil {
		return err
	}
	if p.midway != nil {
		p.midway(m)
	}
	text, own := metadata, sarama.NewConsumerGroupMetadataFromSession(s, p.Group, nil)
	switch p.Way {
	case byMessage:
		return producer.AddMessageToTxn(m, p.Group, &text)
	case byMetadata:
		return producer.AddMessageToTxnWithGroupMetadata(m, own, &text)
	default:
		next := &sarama.PartitionOffsetMetadata{Partition: m.Partition, Offset: m.Offset + 1, Metadata: &text}
		return producer.AddOffsetsToTxnWithGroupMetadata(map[string][]*sarama.PartitionOffsetMetadata{m.Topic: {next}}, own)
	}
}

// failures returns the errors of transactions that could not be repeated, and how many were aborted on purpose.
func (p *program) failures() (errs []error, aborted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs, p.resets
}

// isFenced reports whether Kafka has refused a transaction because a newer producer has its id.
func isFenced(err error) bool {
	return errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch)
}
