package differential_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// eachAtOnce starts the reference and our readers on the same topics, lets something happen, and compares what they read.
func (r *rig) eachAtOnce(t *testing.T, what reading, happen func(all []*background)) {
	t.Helper()
	all := []*background{r.start(t, reference, what, nil)}
	for _, by := range readers {
		all = append(all, r.start(t, by, what, nil))
	}
	happen(all)
	want := all[0].wait()
	for _, b := range all[1:] {
		checkSame(t, b.name, what, want, b.wait())
	}
}

// waitCounts waits until each reader has read n messages of p.
func waitCounts(t *testing.T, all []*background, p partition, n int) {
	t.Helper()
	for _, b := range all {
		wait.Until(t, time.Minute, func() bool { return b.count(p) >= n }, func() string {
			return fmt.Sprintf("%s has %d messages of %s:%d, want %d", b.name, b.count(p), p.topic, p.id, n)
		})
	}
}

// Transactions end while they are read: nothing behind an open one comes with ReadCommitted.
func (r *rig) testOpenTransactions(t *testing.T) {
	const before, inside, after = 30, 20, 40
	for name, isolation := range isolations {
		t.Run(name, func(t *testing.T) {
			topic := topic{name: "open-" + name, partitions: 2}
			r.createTopic(t, topic.name, topic.partitions)
			s := newSource(topic.name)
			plain := r.producer(t)
			// The one is to be committed, the other aborted.
			ends := []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort}
			var txs []*producer
			for id := range topic.partitions {
				plain.send(s.records(before, id)...)
				tx := r.producer(t, kgo.TransactionalID(fmt.Sprint(topic.name, id)))
				tx.begin()
				tx.send(s.records(inside, id)...)
				plain.send(s.records(after, id)...)
				txs = append(txs, tx)
			}
			r.eachAtOnce(t, reading{newConfig(isolation), topic.from(oldest)}, func(all []*background) {
				visible := before
				if isolation == sarama.ReadUncommitted {
					visible += inside + after
				}
				for p := range topic.from(oldest) {
					waitCounts(t, all, p, visible)
				}
				for _, b := range all {
					for p := range topic.from(oldest) {
						if n := b.count(p); n != visible {
							t.Errorf("%s has %d messages of %s:%d while a transaction is open, want %d", b.name, n, p.topic, p.id, visible)
						}
					}
				}
				for i, tx := range txs {
					tx.end(ends[i])
				}
				r.finish(t, topic.name, topic.partitions, time.Now())
			})
		})
	}
}

// Messages are deleted that were to be read next: they may come or not, what is behind them must come, and the gap is reported.
func (r *rig) testRecordsDeleted(t *testing.T) {
	const messages, deleted, size = 600, 500, 10_000
	topic := topic{name: "deleted-under", partitions: 1}
	p := partition{topic.name, 0}
	r.createTopic(t, topic.name, topic.partitions)
	producer := r.producer(t)
	for range messages {
		value := make([]byte, size)
		_, _ = rand.Read(value) // never fails
		producer.send(&kgo.Record{Topic: topic.name, Value: value})
	}
	r.finish(t, topic.name, topic.partitions, time.Now())
	config := newConfig(sarama.ReadUncommitted)
	config.Consumer.Fetch.Default = 2 * size
	config.ChannelBufferSize = 0
	what := reading{config, topic.from(oldest)}
	want := r.start(t, reference, what, nil).wait()[p]
	for _, by := range readers {
		t.Run(by.name, func(t *testing.T) {
			stands, goOn := make(chan struct{}), make(chan struct{})
			b := r.start(t, by, what, func(m *sarama.ConsumerMessage) {
				if m.Offset == 10 {
					close(stands)
					<-goOn
				}
			})
			<-stands
			if err := r.admin.DeleteRecords(topic.name, map[int32]int64{0: deleted}); err != nil {
				t.Error(err)
			}
			close(goOn)
			got := b.wait()[p]
			came := make(map[int64]bool, len(got))
			for _, m := range got {
				came[m.Offset] = true
			}
			may := slices.DeleteFunc(slices.Clone(want), func(m *sarama.ConsumerMessage) bool { return m.Offset < deleted && !came[m.Offset] })
			if len(may) == len(want) {
				t.Error("all messages were read ahead: the test shows nothing")
			}
			checkSame(t, by.name, what, map[partition][]*sarama.ConsumerMessage{p: may}, map[partition][]*sarama.ConsumerMessage{p: got})
			if !reset(b) {
				t.Errorf("the gap was not reported: %v", b.errors())
			}
		})
	}
}

// reset says whether an ErrOffsetReset was reported.
func reset(b *background) bool {
	return slices.ContainsFunc(b.errors(), func(err error) bool { return errors.Is(err, consumer.ErrOffsetReset) })
}

// A broker comes back without its log, so the log ends before the position of its readers: that is reported, and what is written
// from then on is read from the first message.
func (r *rig) testLogIsLost(t *testing.T) {
	for _, by := range readers {
		t.Run(by.name, func(t *testing.T) {
			topic := topic{name: "lost-" + by.name, partitions: 1}
			p := partition{topic.name, 0}
			r.createTopic(t, topic.name, topic.partitions)
			s := newSource(topic.name)
			const old = 150
			r.producer(t).send(s.records(old, 0)...)
			what := reading{newConfig(sarama.ReadUncommitted), topic.from(oldest)}
			b := r.start(t, by, what, nil)
			waitCounts(t, []*background{b}, p, old)
			r.kafka.Stop()
			if err := os.RemoveAll(r.kafka.Nodes()[0].LogDir(topic.name, 0)); err != nil {
				t.Fatal(err)
			}
			r.kafka.Start()
			wait.Until(t, time.Minute, func() bool { return reset(b) }, func() string {
				return fmt.Sprintf("no reset was reported: %v", b.errors())
			})
			r.producer(t).send(s.records(2*old, 0)...)
			r.finish(t, topic.name, topic.partitions, time.Now())
			got := b.wait()[p][old:]
			want := r.start(t, reference, what, nil).wait()
			checkSame(t, by.name, what, want, map[partition][]*sarama.ConsumerMessage{p: got})
		})
	}
}

// Leaders move, and with -full brokers are killed and come back, while messages are written and read.
func TestLeadersMove(t *testing.T) {
	for _, version := range versions() {
		t.Run("kafka "+version, func(t *testing.T) {
			r := newRig(t, servers.KafkaOptions{Version: version, Brokers: 3})
			topic := topic{name: "moving", partitions: 4}
			r.createTopic(t, topic.name, topic.partitions)
			r.eachAtOnce(t, reading{newConfig(sarama.ReadCommitted), topic.from(oldest)}, func([]*background) {
				f := r.feed(t, topic)
				f.waitMore()
				for round := range more(1, 20) {
					r.moveLeaders(t, topic, round)
					f.waitMore()
				}
				for _, node := range r.kafka.Nodes()[:more(0, 3)] {
					node.Kill()
					f.waitMore()
					node.Start()
					node.WaitReady()
					r.kafka.WaitTopic(topic.name, topic.partitions)
					f.waitMore()
				}
				f.stop()
				r.finish(t, topic.name, topic.partitions, time.Now())
			})
		})
	}
}

// feed writes to a topic all the time.
type feed struct {
	t       *testing.T
	cancel  context.CancelFunc
	done    chan struct{}
	written atomic.Int64
}

// feed begins to write; the caller calls stop.
func (r *rig) feed(t *testing.T, topic topic) *feed {
	t.Helper()
	s := newSource(topic.name)
	p := r.producer(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &feed{t: t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			var records []*kgo.Record
			for id := range topic.partitions {
				records = append(records, s.records(s.random.IntN(20), id)...)
			}
			if err := p.try(records...); err != nil {
				t.Errorf("produce: %v", err)
				return
			}
			f.written.Add(int64(len(records)))
		}
	}()
	return f
}

// waitMore waits until some more messages have been written.
func (f *feed) waitMore() {
	f.t.Helper()
	const some = 200
	before := f.written.Load()
	wait.Until(f.t, time.Minute, func() bool { return f.written.Load() >= before+some }, func() string {
		return fmt.Sprintf("%d messages were written", f.written.Load()-before)
	})
}

func (f *feed) stop() {
	f.cancel()
	<-f.done
	f.t.Logf("%d messages were written", f.written.Load())
}

// moveLeaders makes another broker the leader of each partition and returns when the topic is led again.
func (r *rig) moveLeaders(t *testing.T, topic topic, round int) {
	t.Helper()
	replicas := make([][]int32, topic.partitions)
	ids := make([]int32, topic.partitions)
	for id := range replicas {
		ids[id] = int32(id)
		for i := range 3 {
			replicas[id] = append(replicas[id], int32((id+round+i)%3)+1)
		}
	}
	if err := r.admin.AlterPartitionReassignments(topic.name, replicas); err != nil {
		t.Fatalf("reassign: %v", err)
	}
	moved := func() bool {
		topics, err := r.admin.DescribeTopics([]string{topic.name})
		if err != nil || len(topics) != 1 {
			return false
		}
		for _, p := range topics[0].Partitions {
			if p.Leader != replicas[p.ID][0] {
				return false
			}
		}
		return true
	}
	wait.Until(t, time.Minute, func() bool {
		if moved() {
			return true
		}
		_, _ = r.admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic.name: ids}) // until it has worked
		return false
	}, func() string { return "the leaders do not move" })
}
