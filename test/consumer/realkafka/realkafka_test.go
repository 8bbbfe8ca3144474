// Package realkafka_test runs groups of package consumer against real Kafka.
package realkafka_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/zktest"
)

var full = flag.Bool("full", false, "outages of a minute, and all versions of Kafka")

func TestMain(m *testing.M) {
	flag.Parse()
	logtest.Silence()
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry, whatever its configuration says; all its meters share one
		// goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

const topic = "orders"

// rig is a real Kafka and an embedded ZooKeeper.
type rig struct {
	t        *testing.T
	kafka    *servers.Kafka
	zk       string
	brokers  []string
	group    string               // "" is g
	config   *sarama.Config       // of members; nil is memberConfig
	written  int                  // messages of the first partition
	from     consumer.StartAt     // of the members
	observer func(consumer.Event) // of members that are made; nil for none
	topics   []string             // that members which are made consume; nil is topic
	text     string               // with which members that are made mark messages

	processed func(*sarama.ConsumerMessage)             // by members that are made; nil for none
	handler   func(*member) sarama.ConsumerGroupHandler // of members that are made; nil is the member itself

	construct func(zk *session.Session, opts consumer.Options) (*consumer.Group, error) // of members that are made; nil is New
}

func newRig(t *testing.T, opts servers.KafkaOptions, partitions int32) *rig {
	t.Helper()
	r := &rig{t: t, kafka: servers.StartKafka(t, opts)}
	_, r.zk = zktest.Start(t, zktest.Options{TickTime: 200 * time.Millisecond})
	r.brokers = r.kafka.Brokers()
	r.kafka.CreateTopic(topic, partitions)
	return r
}

func (r *rig) produce(n int, partitions ...int32) {
	r.t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = 100 // a new topic's leader may be unknown for a moment
	p, err := sarama.NewSyncProducer(r.brokers, config)
	if err != nil {
		r.t.Fatal(err)
	}
	defer p.Close()
	var ms []*sarama.ProducerMessage
	r.written += n
	for _, part := range partitions {
		for range n {
			ms = append(ms, &sarama.ProducerMessage{Topic: topic, Partition: part, Value: sarama.StringEncoder("value")})
		}
	}
	if err := p.SendMessages(ms); err != nil {
		r.t.Fatal(err)
	}
}

// member consumes until it is left.
type member struct {
	t     *testing.T
	group *consumer.Group
	stop  context.CancelFunc
	done  chan error
	kill  context.CancelFunc
	ran   chan error
	wg    sync.WaitGroup
	count atomic.Int64
	open  atomic.Int64
	first sync.Map // partition → time of its first message
	mu    sync.Mutex
	errs  []error
	sess  atomic.Pointer[sarama.ConsumerGroupSession]

	text      string                        // with which it marks messages
	processed func(*sarama.ConsumerMessage) // nil for none
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.sess.Store(&s)
	return nil
}
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	m.open.Add(1)
	defer m.open.Add(-1)
	for msg := range c.Messages() {
		m.first.LoadOrStore(msg.Partition, time.Now())
		m.count.Add(1)
		if m.processed != nil {
			m.processed(msg)
		}
		s.MarkMessage(msg, m.text)
	}
	return nil
}

func (r *rig) member(name string) *member { return r.memberIn(name, "") }

// memberConfig is what members use unless a test says otherwise.
func memberConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "test"
	config.Version = sarama.V3_6_0_0
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

// memberIn makes a member that is in a zone, and fetches from replicas there.
func (r *rig) memberIn(name, zone string) *member {
	r.t.Helper()
	zk, err := session.New([]string{r.zk}, session.Options{Timeout: 3 * time.Second, MinSessionTimeout: 2 * time.Second})
	if err != nil {
		r.t.Fatal(err)
	}
	config := cmp.Or(r.config, memberConfig())
	config.RackID = zone
	construct := r.construct
	if construct == nil {
		construct = func(zk *session.Session, opts consumer.Options) (*consumer.Group, error) {
			return consumer.New(zk, r.brokers, cmp.Or(r.group, "g"), opts)
		}
	}
	g, err := construct(zk, consumer.Options{Name: name, Config: config, StartAt: r.from, Observer: r.observer})
	if err != nil {
		r.t.Fatal(err)
	}
	m := &member{t: r.t, group: g, done: make(chan error, 1), ran: make(chan error, 1), text: r.text, processed: r.processed}
	ctx, kill := context.WithCancel(context.Background())
	m.kill = kill
	go func() { m.ran <- zk.Run(ctx) }()
	m.wg.Go(func() {
		for err := range g.Errors() {
			m.mu.Lock()
			m.errs = append(m.errs, err)
			m.mu.Unlock()
		}
	})
	consume, stop := context.WithCancel(context.Background())
	m.stop = stop
	var h sarama.ConsumerGroupHandler = m
	if r.handler != nil {
		h = r.handler(m)
	}
	topics := r.topics
	if topics == nil {
		topics = []string{topic}
	}
	go func() {
		var err error
		for err == nil && consume.Err() == nil { // a call ends when the member's partitions change
			err = g.Consume(consume, topics, h)
		}
		if errors.Is(err, context.Canceled) {
			err = nil // stopped before the call
		}
		m.done <- err
	}()
	return m
}

func (m *member) leave() {
	m.t.Helper()
	m.stop()
	if err := <-m.done; err != nil {
		m.t.Errorf("Consume: %v", err)
	}
	if err := m.group.Close(); err != nil {
		m.t.Errorf("Close: %v", err)
	}
	m.wg.Wait()
	m.kill()
	if err := <-m.ran; err != nil {
		m.t.Errorf("session: %v", err)
	}
}

func (m *member) errors() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.errs)
}

func until(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(start) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
		<-tick.C
	}
	return time.Since(start)
}

func ids(n int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// versions returns all versions of Kafka with -full, else the newest.
func versions() []string {
	if *full {
		return []string{servers.Kafka4, servers.Kafka3}
	}
	return []string{servers.Kafka4}
}

// longer runs f on all versions with -full, else on the newest.
func longer(t *testing.T, f func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range versions() {
		t.Run("kafka "+version, func(t *testing.T) { f(t, version) })
	}
}

// A commit waits for no long poll, and neither does a hand-over.
func TestIdlePartitions(t *testing.T) {
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := newRig(t, servers.KafkaOptions{Version: version}, n)
		r.produce(10, ids(n)...)
		a := r.member("a")
		until(t, "all messages", func() bool { return a.count.Load() == 10*n })
		s := *a.sess.Load()
		var took []time.Duration
		for i := range 40 {
			s.ResetOffset(topic, int32(i)%n, int64(9-i/n), "") // each one changes something
			start := time.Now()
			s.Commit()
			took = append(took, time.Since(start))
		}
		for i := range int32(n) {
			s.MarkOffset(topic, i, 10, "")
		}
		s.Commit()
		slices.Sort(took)
		median, worst := took[len(took)/2], took[len(took)-1]
		t.Logf("commits on idle partitions: median %v, worst %v", median, worst)
		if median > 25*time.Millisecond {
			t.Errorf("median %v: commits wait for long polls", median)
		}

		start := time.Now()
		b := r.member("b")
		until(t, "b has its half", func() bool { return b.open.Load() == n/2 })
		joined := time.Since(start)
		start = time.Now()
		a.leave()
		left := time.Since(start)
		until(t, "b has all", func() bool { return b.open.Load() == n })
		t.Logf("join until open %v; leave until returned %v, until open elsewhere %v", joined, left, time.Since(start))
		r.produce(10, ids(n)...)
		until(t, "the next messages", func() bool { return b.count.Load() == 10*n })
		b.leave()
		if errs := append(a.errors(), b.errors()...); len(errs) > 0 {
			t.Errorf("errors: %v", errs)
		}
	})
}

func TestPartitionsOfManyBrokersMove(t *testing.T) {
	const n = 64
	r := newRig(t, servers.KafkaOptions{Brokers: 3}, n)
	r.produce(100, ids(n)...)
	a := r.member("a")
	until(t, "all messages", func() bool { return a.count.Load() == 100*n })
	b, c := r.member("b"), r.member("c")
	until(t, "all have some", func() bool { return a.open.Load() == 22 && b.open.Load() == 21 && c.open.Load() == 21 })
	r.produce(100, ids(n)...)
	total := func() int64 { return a.count.Load() + b.count.Load() + c.count.Load() }
	until(t, "the next messages", func() bool { return total() == 200*n })
	a.leave()
	d := until(t, "the others have all", func() bool { return b.open.Load()+c.open.Load() == n })
	t.Logf("22 partitions open elsewhere %v after leaving returned", d)
	r.produce(100, ids(n)...)
	until(t, "the next messages", func() bool { return total() == 300*n })
	b.leave()
	c.leave()
	if got := total(); got != 300*n {
		t.Errorf("%d messages, want %d", got, 300*n)
	}
	if errs := slices.Concat(a.errors(), b.errors(), c.errors()); len(errs) > 0 {
		t.Errorf("errors: %v", errs)
	}
}

// TestGroupInUse shows the answers of real brokers to a group in use, and to one that is new: kfake does not give them.
func TestGroupInUse(t *testing.T) {
	longer(t, func(t *testing.T, version string) {
		r := newRig(t, servers.KafkaOptions{Version: version}, 1)
		config := sarama.NewConfig()
		config.Version = sarama.V3_6_0_0
		theirs, err := sarama.NewConsumerGroup(r.brokers, "g", config)
		if err != nil {
			t.Fatal(err)
		}
		joined := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = theirs.Consume(ctx, []string{topic}, joiner{joined})
		}()
		<-joined
		a := r.member("a")
		until(t, "ours says so", func() bool {
			return slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrGroupInUse) })
		})
		if a.open.Load() != 0 {
			t.Error("opened beside Kafka's own members")
		}
		cancel()
		<-done
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
		until(t, "ours is open", func() bool { return a.open.Load() == 1 })
		a.leave()
	})
}

type joiner struct{ joined chan struct{} }

func (j joiner) Setup(sarama.ConsumerGroupSession) error { close(j.joined); return nil }
func (joiner) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (joiner) ConsumeClaim(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for range c.Messages() {
	}
	return nil
}

// Kafka goes and comes back; ZooKeeper is fine all the while, so nobody loses anything.
func TestKafkaRestarts(t *testing.T) {
	const n = 4
	r := newRig(t, servers.KafkaOptions{}, n)
	r.produce(100, ids(n)...)
	a, b := r.member("a"), r.member("b")
	total := func() int64 { return a.count.Load() + b.count.Load() }
	until(t, "all messages", func() bool { return total() == 100*n && a.open.Load() == 2 && b.open.Load() == 2 })
	r.kafka.Stop()
	if _, err := consumer.NewGroup([]string{r.zk}, r.brokers, "g", consumer.Options{}); !errors.Is(err, sarama.ErrOutOfBrokers) {
		t.Errorf("NewGroup without Kafka: %v", err)
	}
	r.kafka.Start()
	r.produce(100, ids(n)...)
	d := until(t, "the next messages", func() bool { return total() == 200*n })
	t.Logf("the next messages %v after Kafka was back", d)
	if a.open.Load() != 2 || b.open.Load() != 2 {
		t.Errorf("open: %d and %d", a.open.Load(), b.open.Load())
	}
	a.leave()
	b.leave()
	c := r.member("c")
	until(t, "c has all", func() bool { return c.open.Load() == n })
	r.produce(1, ids(n)...)
	until(t, "the last messages", func() bool { return c.count.Load() == n })
	c.leave()
	if got := total() + c.count.Load(); got != 201*n {
		t.Errorf("%d messages, want %d", got, 201*n)
	}
	if len(c.errors()) > 0 {
		t.Errorf("errors: %v", c.errors())
	}
}

// A commit ends with its connection: what the broker never took is not left in the kernel to arrive later.
func TestBrokerDiesUnderACommit(t *testing.T) {
	r := newRig(t, servers.KafkaOptions{}, 1)
	r.produce(10, 0)
	a := r.member("a")
	until(t, "all messages", func() bool { return a.count.Load() == 10 })
	s := *a.sess.Load()
	r.kafka.Kill()
	s.ResetOffset(topic, 0, 5, "")
	start := time.Now()
	s.Commit()
	t.Logf("Commit without a broker returned after %v", time.Since(start))
	r.kafka.Start()
	until(t, "an error was reported", func() bool { return len(a.errors()) > 0 })
	s.MarkOffset(topic, 0, 10, "")
	s.Commit()
	a.leave()
	b := r.member("b")
	until(t, "b is open", func() bool { return b.open.Load() == 1 })
	r.produce(1, 0)
	until(t, "b goes on at the end", func() bool { return b.count.Load() == 1 })
	b.leave()
}
