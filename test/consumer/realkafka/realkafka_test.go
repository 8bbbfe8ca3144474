// Package realkafka_test runs groups of package consumer against real Kafka.
package realkafka_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// all are the servers that tests share. They use topics and groups of their own there, and leave the brokers alone.
var all servers.Shared

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "1") // other packages run beside this one, and brokers take all of two cores when they start
	flag.Parse()
	logtest.Silence()
	goleak.VerifyTestMain(all.Main(m),
		// sarama counts fetches by topic in go-metrics' own registry, whatever its configuration says; all its meters share one
		// goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// rig is a topic and a group on a real Kafka, and an embedded ZooKeeper.
type rig struct {
	t        *testing.T
	kafka    *servers.Kafka
	zk       string
	brokers  []string
	topic    string
	group    string
	config   *sarama.Config       // of members; nil is memberConfig
	written  int                  // messages of the first partition
	observer func(consumer.Event) // of members that are made; nil for none
	topics   []string             // that members which are made consume; nil is topic
	text     string               // with which members that are made mark messages
	logger   *slog.Logger         // of members that are made

	processed func(*sarama.ConsumerMessage)             // by members that are made; nil for none
	handler   func(*member) sarama.ConsumerGroupHandler // of members that are made; nil is the member itself

	administers sarama.ClusterAdmin // see admin

	construct func(zk *session.Session, opts consumer.Options) (*consumer.Group, error) // of members that are made; nil is New
}

// rigs counts, so that each has a topic of its own however often a test runs.
var rigs atomic.Int64

// newRig makes a rig on brokers of its own.
func newRig(t *testing.T, opts servers.KafkaOptions, partitions int32) *rig {
	t.Helper()
	return rigOn(t, servers.StartKafka(t, opts), partitions)
}

// sharedRig makes a rig on the broker that all tests share.
func sharedRig(t *testing.T, version string, partitions int32) *rig {
	t.Helper()
	return rigOn(t, all.Kafka(t, "Kafka "+version, servers.KafkaOptions{Version: version}), partitions)
}

func rigOn(t *testing.T, kafka *servers.Kafka, partitions int32) *rig {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	name := fmt.Sprintf("%s-%d", test, rigs.Add(1))
	r := &rig{t: t, kafka: kafka, brokers: kafka.Brokers(), topic: name, group: name}
	_, r.zk = zktest.Start(t, zktest.Options{TickTime: 200 * time.Millisecond})
	kafka.CreateTopic(name, partitions)
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
			ms = append(ms, &sarama.ProducerMessage{Topic: r.topic, Partition: part, Value: sarama.StringEncoder("value")})
		}
	}
	if err := p.SendMessages(ms); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) admin() sarama.ClusterAdmin {
	r.t.Helper()
	if r.administers != nil {
		return r.administers
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	a, err := sarama.NewClusterAdmin(r.brokers, config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = a.Close() })
	r.administers = a
	return a
}

// committed returns what Kafka has for a partition of the group, -1 when nothing.
func (r *rig) committed(p int32) int64 {
	r.t.Helper()
	resp, err := r.admin().ListConsumerGroupOffsets(r.group, map[string][]int32{r.topic: {p}})
	if err != nil {
		r.t.Fatal(err)
	}
	b := resp.GetBlock(r.topic, p)
	if b == nil || b.Err != sarama.ErrNoError {
		r.t.Fatalf("%s:%d: %+v", r.topic, p, b)
	}
	return b.Offset
}

// member consumes until it is left.
type member struct {
	t     *testing.T
	topic string
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
	zk, err := session.New([]string{r.zk}, session.Options{Timeout: 3 * time.Second, MinSessionTimeout: 2 * time.Second, Logger: r.logger})
	if err != nil {
		r.t.Fatal(err)
	}
	config := cmp.Or(r.config, memberConfig())
	config.RackID = zone
	construct := r.construct
	if construct == nil {
		construct = func(zk *session.Session, opts consumer.Options) (*consumer.Group, error) {
			return consumer.New(zk, r.brokers, r.group, opts)
		}
	}
	g, err := construct(zk, consumer.Options{Name: name, Config: config, Observer: r.observer, Logger: r.logger})
	if err != nil {
		r.t.Fatal(err)
	}
	m := &member{t: r.t, topic: r.topic, group: g, done: make(chan error, 1), ran: make(chan error, 1), text: r.text, processed: r.processed}
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
		topics = []string{r.topic}
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

// leave lets members leave, one after the other, and checks that they have reported nothing.
func leave(members ...*member) {
	for _, m := range members {
		m.t.Helper()
		m.leave()
		if errs := m.errors(); len(errs) > 0 {
			m.t.Errorf("errors: %v", errs)
		}
	}
}

// total returns how many messages members have got.
func total(members ...*member) (n int64) {
	for _, m := range members {
		n += m.count.Load()
	}
	return n
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

// longer runs f on all versions with -full, else on the newest, beside other tests.
func longer(t *testing.T, f func(t *testing.T, version string)) {
	t.Helper()
	versions := []string{servers.Kafka4}
	if *full {
		versions = append(versions, servers.Kafka3)
	}
	for _, version := range versions {
		t.Run("kafka "+version, func(t *testing.T) {
			t.Parallel()
			f(t, version)
		})
	}
}

// A commit waits for no long poll, and neither does a hand-over.
func TestIdlePartitions(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := sharedRig(t, version, n)
		r.config = memberConfig()
		r.config.Consumer.MaxWaitTime = 10 * time.Second
		r.produce(10, ids(n)...)
		a := r.member("a")
		until(t, "all messages", func() bool { return a.count.Load() == 10*n })
		s := *a.sess.Load()
		var took []time.Duration
		for i := range 40 {
			s.ResetOffset(r.topic, int32(i)%n, int64(9-i/n), "") // each one changes something
			start := time.Now()
			s.Commit()
			took = append(took, time.Since(start))
		}
		for i := range int32(n) {
			s.MarkOffset(r.topic, i, 10, "")
		}
		s.Commit()
		slices.Sort(took)
		median, worst := took[len(took)/2], took[len(took)-1]
		t.Logf("commits on idle partitions: median %v, worst %v", median, worst)
		if median > 250*time.Millisecond { // other tests run beside this one
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
		moved := time.Since(start)
		t.Logf("join until open %v; leave until returned %v, until open elsewhere %v", joined, left, moved)
		if max(joined, moved) > 9*time.Second {
			t.Error("a hand-over waits for a long poll")
		}
		r.produce(10, ids(n)...)
		until(t, "the next messages", func() bool { return b.count.Load() == 10*n })
		leave(b)
		if errs := a.errors(); len(errs) > 0 {
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
	until(t, "all have some", func() bool { // who has the odd one depends on who came first
		each := []int64{a.open.Load(), b.open.Load(), c.open.Load()}
		return slices.Min(each) == n/3 && each[0]+each[1]+each[2] == n
	})
	r.produce(100, ids(n)...)
	until(t, "the next messages", func() bool { return total(a, b, c) == 200*n })
	leave(a)
	d := until(t, "the others have all", func() bool { return b.open.Load()+c.open.Load() == n })
	t.Logf("a third of the partitions open elsewhere %v after leaving returned", d)
	r.produce(100, ids(n)...)
	until(t, "the next messages", func() bool { return total(a, b, c) == 300*n })
	leave(b, c)
	if got := total(a, b, c); got != 300*n {
		t.Errorf("%d messages, want %d", got, 300*n)
	}
}

// TestGroupInUse shows the answers of real brokers to a group in use, and to one that is new: kfake does not give them.
func TestGroupInUse(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		r := sharedRig(t, version, 1)
		theirs, stop := r.theirs(r.group, r.topic)
		until(t, "sarama's member is open", func() bool { return theirs.open.Load() == 1 })
		a := r.member("a")
		until(t, "ours says so", func() bool {
			return slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrGroupInUse) })
		})
		if a.open.Load() != 0 {
			t.Error("opened beside Kafka's own members")
		}
		stop()
		until(t, "ours is open", func() bool { return a.open.Load() == 1 })
		a.leave()
	})
}
