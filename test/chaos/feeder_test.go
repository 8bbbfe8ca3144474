package chaos_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// feeder sends messages to partitions of a topic.
type feeder struct {
	end      context.CancelFunc
	done     chan struct{}           // closed when all was answered
	acked    map[int32]*atomic.Int64 // by partition, the offset after the last message that Kafka has acknowledged
	failed   atomic.Int64
	answered atomic.Int64
	stopped  sync.Once
	t        *testing.T
}

func startFeeder(t *testing.T, brokers []string, topic string, ids []int32, beat time.Duration) *feeder {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = beat / 2
	config.Producer.Retry.Max = 100 // a new topic's leader may be unknown for a moment
	config.Net.MaxOpenRequests = 1
	p, err := sarama.NewAsyncProducer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &feeder{end: cancel, done: make(chan struct{}), acked: map[int32]*atomic.Int64{}, t: t}
	for _, id := range ids {
		f.acked[id] = new(atomic.Int64)
	}
	go func() {
		defer p.AsyncClose()
		every := time.NewTicker(beat)
		defer every.Stop()
		// A producer that is closing drops what it would have to send again, so all has to be answered before.
		for sent := int64(0); ctx.Err() == nil || f.answered.Load() < sent; <-every.C {
			if ctx.Err() != nil {
				continue
			}
			for _, id := range ids {
				p.Input() <- &sarama.ProducerMessage{Topic: topic, Partition: id, Value: sarama.StringEncoder("x")}
				sent++
			}
		}
	}()
	var answers sync.WaitGroup
	answers.Go(func() {
		for m := range p.Successes() {
			f.answered.Add(1)
			if end := f.acked[m.Partition]; m.Offset >= end.Load() {
				end.Store(m.Offset + 1)
			}
		}
	})
	answers.Go(func() {
		for range p.Errors() {
			f.answered.Add(1)
			f.failed.Add(1)
		}
	})
	go func() { defer close(f.done); answers.Wait() }()
	t.Cleanup(f.stop)
	return f
}

// stop ends producing and returns when all was answered.
func (f *feeder) stop() {
	f.stopped.Do(func() {
		f.end()
		<-f.done
		if n := f.failed.Load(); n > 0 {
			f.t.Errorf("Kafka did not take %d messages", n)
		}
	})
}

func sorted(list []int64) []int64 {
	slices.Sort(list)
	return list
}
