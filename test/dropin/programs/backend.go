package programs

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// Kind is whose group a program runs on.
type Kind string

// The kinds of groups: ours and sarama's, each with sarama's default strategies and with the cooperative-sticky one.
const (
	Ours        Kind = "ours"
	Incremental Kind = "ours, incremental"
	Eager       Kind = "eager"
	Cooperative Kind = "cooperative"
)

// isOurs reports whether the group is of package consumer.
func (k Kind) isOurs() bool { return k == Ours || k == Incremental }

// Dial opens a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Backend is the Kafka and the ZooKeeper that programs run on.
type Backend struct {
	Brokers, ZooKeeper []string
	// DialKafka and DialZooKeeper open connections; nil is TCP.
	DialKafka, DialZooKeeper Dial
	// SessionTimeout is that of members of all kinds.
	SessionTimeout time.Duration
	// Pause is what Host has.
	Pause time.Duration
	// Busy is how long a message takes. If it is not 0, members come and go while there is something to do.
	Busy time.Duration
}

// tcp is the Dial of real networks.
func tcp(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// config is the configuration of a member, and of the test itself: that of a program, or one of the test's when it is nil.
func (b *Backend) config(kind Kind, kafka *link, program *sarama.Config) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "programs"
	c.Consumer.Return.Errors = true
	if program != nil {
		*c = *program
		c.ClientID = "test-" + program.ClientID
	}
	c.Version = sarama.V3_6_0_0
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, kafka
	c.Metadata.Retry.Backoff = 50 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	if !kind.isOurs() { // to which these mean nothing
		c.Consumer.Group.Session.Timeout = b.SessionTimeout
		c.Consumer.Group.Heartbeat.Interval = b.SessionTimeout / 10
	}
	if kind == Cooperative || kind == Incremental {
		c.Consumer.Group.Rebalance.Strategy = nil
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	return c
}

// group makes a member's group. kafka and zk are its connections.
func (b *Backend) group(kind Kind, topic, name string, log *slog.Logger, kafka, zk *link, program *sarama.Config) (sarama.ConsumerGroup, error) {
	config := b.config(kind, kafka, program)
	if !kind.isOurs() {
		return sarama.NewConsumerGroup(b.Brokers, topic, config)
	}
	opts := consumer.Options{
		Name: name, Config: config, Logger: log, StopTimeout: b.SessionTimeout,
		Session: session.Options{Dial: zk.DialContext, Timeout: b.SessionTimeout, MinSessionTimeout: b.SessionTimeout / 2},
	}
	if s := config.Consumer.Group.Rebalance.Strategy; s != nil && s.Name() == "copartition" { // goka's own
		opts.Func = allocfn.CoPartitioned()
	}
	return consumer.NewGroup(b.ZooKeeper, b.Brokers, topic, opts)
}

// link is the connections of one member to one kind of server.
type link struct {
	dial Dial

	mu    sync.Mutex
	dead  bool
	conns map[net.Conn]bool
}

func newLink(dial Dial) *link {
	l := &link{dial: dial, conns: map[net.Conn]bool{}}
	if dial == nil {
		l.dial = tcp
	}
	return l
}

// Dial makes a link the dialer of sarama.
func (l *link) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

// DialContext opens a connection unless the link is cut.
func (l *link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if l.isDead() {
		return nil, syscall.ECONNREFUSED
	}
	c, err := l.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Close()
		return nil, syscall.ECONNREFUSED
	}
	l.conns[c] = true
	return c, nil
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// cut closes all connections, as the end of a process does.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		_ = c.Close()
	}
}
