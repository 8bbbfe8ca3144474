package differential_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
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
	var all []*background
	var standing sync.WaitGroup
	goOn := make(chan struct{})
	for _, by := range readers {
		standing.Add(1)
		stands := sync.OnceFunc(standing.Done)
		all = append(all, r.start(t, by, what, func(m *sarama.ConsumerMessage) {
			if m.Offset == 10 {
				stands()
				<-goOn
			}
		}))
	}
	standing.Wait()
	if err := r.admin.DeleteRecords(topic.name, map[int32]int64{0: deleted}); err != nil {
		t.Error(err)
	}
	close(goOn)
	for _, b := range all {
		got := b.wait()[p]
		came := make(map[int64]bool, len(got))
		for _, m := range got {
			came[m.Offset] = true
		}
		may := slices.DeleteFunc(slices.Clone(want), func(m *sarama.ConsumerMessage) bool { return m.Offset < deleted && !came[m.Offset] })
		if len(may) == len(want) {
			t.Errorf("%s had read all messages ahead: the test shows nothing", b.name)
		}
		checkSame(t, b.name, what, map[partition][]*sarama.ConsumerMessage{p: may}, map[partition][]*sarama.ConsumerMessage{p: got})
		if !reset(b) {
			t.Errorf("%s did not report the gap: %v", b.name, b.errors())
		}
	}
}

// reset says whether an ErrOffsetReset was reported.
func reset(b *background) bool {
	return slices.ContainsFunc(b.errors(), func(err error) bool { return errors.Is(err, consumer.ErrOffsetReset) })
}

// A broker comes back without its logs. A reader that looks before anything is written finds that the log ends before its
// position, and one that looks later finds other messages at offsets that it has read. Both report that, and read from the first
// message.
func (r *rig) testLogIsLost(t *testing.T) {
	const old = 150
	lost, replaced := topic{name: "lost", partitions: 1}, topic{name: "replaced", partitions: 1}
	all, sources := map[string][]*background{}, map[string]*source{}
	cut := new(cutter)
	for _, topic := range []topic{lost, replaced} {
		r.createTopic(t, topic.name, 1)
		sources[topic.name] = newSource(topic.name)
		r.producer(t).send(sources[topic.name].records(old, 0)...)
		config := newConfig(sarama.ReadUncommitted)
		if topic.name == replaced.name {
			config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, cut
		}
		for _, by := range readers {
			all[topic.name] = append(all[topic.name], r.start(t, by, reading{config, topic.from(oldest)}, nil))
		}
		waitCounts(t, all[topic.name], partition{topic.name, 0}, old)
	}
	cut.set(true)
	r.kafka.Stop()
	for _, topic := range []topic{lost, replaced} {
		if err := os.RemoveAll(r.kafka.Nodes()[0].LogDir(topic.name, 0)); err != nil {
			t.Fatal(err)
		}
	}
	r.kafka.Start()
	waitReset(t, all[lost.name])
	for _, topic := range []topic{lost, replaced} {
		r.producer(t).send(sources[topic.name].records(2*old, 0)...)
		r.finish(t, topic.name, 1, time.Now())
	}
	cut.set(false)
	waitReset(t, all[replaced.name])
	for _, topic := range []topic{lost, replaced} {
		what := reading{newConfig(sarama.ReadUncommitted), topic.from(oldest)}
		want := r.start(t, reference, what, nil).wait()
		p := partition{topic.name, 0}
		for _, b := range all[topic.name] {
			checkSame(t, b.name, what, want, map[partition][]*sarama.ConsumerMessage{p: b.wait()[p][old:]})
		}
	}
}

// waitReset waits until each reader has reported an ErrOffsetReset.
func waitReset(t *testing.T, all []*background) {
	t.Helper()
	for _, b := range all {
		wait.Until(t, time.Minute, func() bool { return reset(b) }, func() string {
			return fmt.Sprintf("%s reports no reset: %v", b.name, b.errors())
		})
	}
}

// cutter dials brokers unless it is cut.
type cutter struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// set cuts all connections off and refuses new ones, or allows them again.
func (c *cutter) set(isCut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = isCut
	for _, nc := range c.conns {
		_ = nc.Close()
	}
	c.conns = nil
}

// Dial opens a connection.
func (c *cutter) Dial(network, address string) (net.Conn, error) {
	nc, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return nil, errors.Join(errors.New("cut off"), nc.Close())
	}
	c.conns = append(c.conns, nc)
	return nc, nil
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
