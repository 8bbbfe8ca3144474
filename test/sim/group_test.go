package sim_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/internal/bufferedconn"
)

// brokers is kfake, with a producer: Kafka for members that are consumer.Groups.
type brokers struct {
	pacer

	plan    *plan
	cluster *kfake.Cluster
	net     *kfake.VirtualNetwork
	prod    *kgo.Client

	mu    sync.Mutex
	sent  []int64
	down  bool
	conns map[*kafkaConn]struct{}
}

func newBrokers(p *plan) *brokers {
	b := &brokers{
		pacer: newPacer(), plan: p, net: &kfake.VirtualNetwork{}, sent: make([]int64, p.Partitions), conns: map[*kafkaConn]struct{}{},
	}
	topics := []kfake.Opt{kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(b.net.Listen)}
	for topic, n := range p.sizes() {
		topics = append(topics, kfake.SeedTopics(n, topic))
	}
	var err error
	b.cluster, err = kfake.NewCluster(topics...)
	if err != nil {
		panic(err)
	}
	b.prod, err = kgo.NewClient(
		kgo.SeedBrokers(b.cluster.ListenAddrs()...), kgo.Dialer(b.net.DialContext),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	)
	if err != nil {
		panic(err)
	}
	return b
}

func (b *brokers) produce(ctx context.Context) {
	b.each(ctx, func() {
		var records []*kgo.Record
		for i := range b.sent {
			part := b.plan.partition(i)
			records = append(records, &kgo.Record{Topic: part.Topic, Partition: part.ID, Value: []byte("value")})
		}
		if err := b.prod.ProduceSync(context.WithoutCancel(ctx), records...).FirstErr(); err != nil {
			panic(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for part := range b.sent {
			b.sent[part]++
		}
	})
}

func (b *brokers) ends() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]int64(nil), b.sent...)
}

// setLate moves leaders and coordinators, and breaks connections.
func (b *brokers) setLate(on bool) {
	if on {
		b.cluster.RehashCoordinators()
		for i := range b.sent {
			part := b.plan.partition(i)
			_ = b.cluster.MoveTopicPartition(part.Topic, part.ID, int32(i%2))
		}
		b.cut(nil)
	}
}

// setSlow breaks connections: nothing may be slow here, see kafkaDialer.
func (b *brokers) setSlow(time.Duration) { b.cut(nil) }

func (b *brokers) setDown(down bool) {
	b.mu.Lock()
	b.down = down
	b.mu.Unlock()
	b.cut(nil)
}

func (b *brokers) close() {
	b.prod.Close()
	b.cluster.Close()
}

// config is sarama's configuration of a process.
func (b *brokers) config(p *process) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "sim"
	c.Version = sarama.V3_6_0_0
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = &kafkaDialer{p: p, b: b}
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 5*time.Second, 10*time.Second, 5*time.Second
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 5 * time.Second
	return c
}

// kafkaDialer is a process's way to Kafka. Connections break when the process stands still or dies and when Kafka is down. They
// must not hang: sarama waits for answers with a mutex in hand, and virtual time stands still while another goroutine wants that.
type kafkaDialer struct {
	p *process
	b *brokers
}

var errNoWay = errors.New("kafka can't be reached")

func (d *kafkaDialer) Dial(network, address string) (net.Conn, error) {
	if d.p.isDead() || d.p.standsStill() {
		return nil, errNoWay
	}
	nc, err := d.b.net.DialContext(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	c := &kafkaConn{d: d}
	c.Conn = bufferedconn.New(nc, func() { d.b.remove(c) })
	if !d.b.add(c) {
		_ = c.Close()
		return nil, errNoWay
	}
	return c, nil
}

// add registers a connection, unless Kafka is down.
func (b *brokers) add(c *kafkaConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return false
	}
	b.conns[c] = struct{}{}
	return true
}

// remove is called when a connection is closed.
func (b *brokers) remove(c *kafkaConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
}

// cut breaks the connections of a process, or all when p is nil.
func (b *brokers) cut(p *process) {
	b.mu.Lock()
	var list []*kafkaConn
	for c := range b.conns {
		if p == nil || c.d.p == p {
			list = append(list, c)
		}
	}
	b.mu.Unlock()
	for _, c := range list {
		_ = c.Close()
	}
}

// kafkaConn is a connection of a process.
type kafkaConn struct {
	*bufferedconn.Conn

	d *kafkaDialer
}

// startGroup makes the process's group consume.
func (w *world) startGroup(p *process, log *slog.Logger) {
	var err error
	p.group, err = consumer.New(p.ses, w.brokers.cluster.ListenAddrs(), groupName, consumer.Options{
		Name: p.name, Config: w.brokers.config(p), StartAt: consumer.Earliest, Func: p.function(),
		RebalanceTimeout: rebalanceTimeout, StopTimeout: stopTimeout, CommitInterval: commitEvery, MaxUnmarked: doneWindow,
		Observer: p.observeGroup, Logger: log, Registerer: p.reg, ReopenPartition: p.reopens(),
	})
	if err != nil {
		panic(err)
	}
	w.later(func() {
		for err := range p.group.Errors() {
			p.onError(err)
		}
	})
}

// consume is the group's Run.
func (p *process) consume(ctx context.Context) error {
	var err error
	for ctx.Err() == nil {
		err = p.consumeOnce(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil, errors.Is(err, consumer.ErrHandler): // a handler has returned
			p.w.cov.hit("group: a handler ended its session")
			err = nil
			continue
		case errors.Is(err, sarama.ErrOutOfBrokers), errors.Is(err, errNoWay): // there is no Kafka, which Consume tells at once
			sleep(ctx, time.Second)
			continue
		}
		break
	}
	_ = p.group.Close()
	return err
}
