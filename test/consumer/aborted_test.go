package consumer_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
)

// abort writes transactions to partition 0 that are aborted, of n messages each.
func (r *rig) abort(transactions, n int) {
	r.t.Helper()
	c, err := kgo.NewClient(
		kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.Dialer(r.knet.DialContext), kgo.TransactionalID("aborts"), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	for range transactions {
		if err := c.BeginTransaction(); err != nil {
			r.t.Fatal(err)
		}
		for range n {
			c.Produce(r.t.Context(), &kgo.Record{Value: []byte("aborted")}, nil)
		}
		if err := c.Flush(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		if err := c.EndTransaction(r.t.Context(), kgo.TryAbort); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Transactions that are all aborted leave nothing to mark. The stored offset goes past them all the same: the group has no lag in
// Kafka's eyes, and retention takes no position from it.
func TestAbortedTransactionsAloneMoveTheOffset(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		committed := func(o *consumer.Options) { o.Config.Consumer.IsolationLevel = sarama.ReadCommitted }
		a := r.member("a", committed).start()
		until(t, "the partition is open", func() bool { return len(a.owns()) == 1 })
		r.abort(10, 10)
		end := int64(110) // with the markers
		until(t, "the offset is stored", func() bool { return r.committed(topic, 0) == end })
		r.abort(1, 10)
		time.Sleep(100 * time.Millisecond) // until they have come, and before the next commit
		quit(a)
		if at := r.committed(topic, 0); at != end+11 {
			t.Errorf("stored %d when the member has left, want %d", at, end+11)
		}
		if err := r.kafka.DeleteRecords(topic, 0, end+11); err != nil {
			t.Fatal(err)
		}
		b := r.member("b", committed).start()
		r.produce(1, 0)
		until(t, "a message is read", func() bool { return b.h.count() == 1 })
		time.Sleep(time.Second)
		quit(b)
		if errs := append(a.errors(), b.errors()...); len(errs) > 0 || a.h.count() > 0 {
			t.Errorf("%d messages were read, and reported %v", a.h.count(), errs)
		}
	})
}
