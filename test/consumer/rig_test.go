package consumer_test

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	group = "g"
	topic = "t"
)

type partition = eventlog.Partition

// rig is one ZooKeeper and one Kafka on virtual networks.
type rig struct {
	t     *testing.T
	zk    *zktest.Server
	zknet *zktest.Network
	kafka *kfake.Cluster
	knet  *kfake.VirtualNetwork
	prod  *kgo.Client

	mu   sync.Mutex
	all  []int32 // partitions of the topic, at first
	sent map[partition]int64
	logs []*log
}

func newRig(t *testing.T, partitions int32, opts ...kfake.Opt) *rig {
	t.Helper()
	r := &rig{t: t, knet: &kfake.VirtualNetwork{}, sent: map[partition]int64{}}
	for p := range partitions {
		r.all = append(r.all, p)
	}
	r.zk, r.zknet = zktest.StartVirtual(t, zktest.Options{})
	var err error
	r.kafka, err = kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(r.knet.Listen), kfake.SeedTopics(partitions, topic),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kafka.Close)
	r.prod, err = kgo.NewClient(
		kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.Dialer(r.knet.DialContext),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.prod.Close)
	return r
}

// produce appends n messages to each of the partitions, or to all.
func (r *rig) produce(n int, partitions ...int32) {
	r.t.Helper()
	if len(partitions) == 0 {
		partitions = r.all
	}
	r.produceTo(topic, n, partitions...)
}

func (r *rig) produceTo(topic string, n int, partitions ...int32) {
	r.t.Helper()
	var records []*kgo.Record
	for _, p := range partitions {
		for range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: []byte("value")})
		}
	}
	if err := r.prod.ProduceSync(context.WithoutCancel(r.t.Context()), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		r.sent[partition{Topic: topic, ID: p}] += int64(n)
	}
}

// grow gives the topic more partitions.
func (r *rig) grow(to int32) {
	r.t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	one := kmsg.NewCreatePartitionsRequestTopic()
	one.Topic, one.Count = topic, to
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(r.t.Context(), r.prod)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.prod.PurgeTopicsFromClient(topic) // it asks anew
}

// recreate deletes the topic and creates it again, empty.
func (r *rig) recreate() {
	r.t.Helper()
	if err := r.kafka.DeleteTopic(topic); err != nil {
		r.t.Fatal(err)
	}
	if err := r.kafka.CreateTopic(topic, 1, nil); err != nil {
		r.t.Fatal(err)
	}
	r.prod.PurgeTopicsFromClient(topic)
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.sent)
}

// joinKafkaGroup joins the group with Kafka's own protocol until leave is called.
func (r *rig) joinKafkaGroup() (leave func()) {
	r.t.Helper()
	c, err := kgo.NewClient(
		kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.Dialer(r.knet.DialContext),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
	)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.kafka.WaitGroupStable(r.t.Context(), group, 1); err != nil {
		r.t.Fatal(err)
	}
	return c.Close
}

// joinShareGroup makes a share group of the group's name, until remove is called.
func (r *rig) joinShareGroup() (remove func()) {
	r.t.Helper()
	c, err := kgo.NewClient(
		kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.Dialer(r.knet.DialContext), kgo.ShareGroup(group), kgo.ConsumeTopics(topic),
	)
	if err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // it joins
	return func() {
		r.t.Helper()
		c.Close()
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{group}
		resp, err := req.RequestWith(r.t.Context(), r.prod)
		if err == nil {
			err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// observe counts Kafka's requests of a kind from now on.
func (r *rig) observe(key kmsg.Key) *kfake.FaultHandle {
	return r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Count: -1, Observe: true})
}

// refuse has Kafka answer requests of a kind with an error for each partition, or for some, until the fault is removed.
func (r *rig) refuse(key kmsg.Key, err *kerr.Error, partitions ...int32) *kfake.FaultHandle {
	return r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Partitions: partitions, Err: err, Count: -1})
}

// committed returns what Kafka has for a partition, -1 when nothing.
func (r *rig) committed(topic string, p int32) int64 {
	info := r.kafka.GroupInfo(group)
	if info == nil {
		return -1
	}
	c, ok := info.Commits[topic][p]
	if !ok {
		return -1
	}
	return c.Offset
}

// config is a configuration on the virtual network.
func (r *rig) config() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "test"
	c.Version = sarama.V3_6_0_0
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = dialer{r.knet}
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	if !*eagerly {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	return c
}

// eagerly says that sessions are eager: without it the tests of this package that name no kind have incremental ones, because a
// session then lasts as long as its call.
var eagerly = flag.Bool("eager", false, "run the tests with eager sessions; those that expect what only incremental ones do fail")

// log is a member's events, and where they go.
type log struct {
	name string
	mu   sync.Mutex
	ev   []eventlog.Event
	cut  int64 // when the process died, for the checker
}

func (l *log) observe(e consumer.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := eventlog.Event{
		T: time.Now().UnixNano(), Member: l.name, Event: string(e.Kind), Topic: e.Topic,
		Token: e.Token, Version: e.Version, Session: strconv.FormatInt(e.Session, 16),
	}
	if e.Partition >= 0 && e.Topic != "" {
		out.Partition = &e.Partition
	}
	if e.Offset >= 0 {
		out.Offset = &e.Offset
	}
	if !e.Since.IsZero() {
		out.Since = e.Since.UnixNano()
	}
	l.ev = append(l.ev, out)
}

// done notes that the handler has processed a message.
func (l *log) done(m *sarama.ConsumerMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ev = append(l.ev, eventlog.Event{
		T: time.Now().UnixNano(), Member: l.name, Event: eventlog.Done, Topic: m.Topic, Partition: new(m.Partition), Offset: new(m.Offset),
	})
}

func (l *log) events() []eventlog.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ev)
}

// member is one Group that consumes, and what it saw.
type member struct {
	r     *rig
	t     *testing.T
	name  string
	zk    *session.Session
	net   *zktest.Client
	group *consumer.Group
	log   *log
	h     *recorder
	stop  context.CancelFunc // of Consume
	done  chan error         // Consume's
	kill  context.CancelFunc // of the session's Run
	ran   chan struct{}      // closed when Run has returned
	errs  chan struct{}      // closed when Errors is
	mu    sync.Mutex
	seen  []error
}

// member makes a member that does not consume yet.
func (r *rig) member(name string, change func(*consumer.Options)) *member {
	r.t.Helper()
	return r.clocked(name, nil, change)
}

// clocked makes a member whose session goes by a clock of the test's; nil is the machine's.
func (r *rig) clocked(name string, clock clocks.Clock, change func(*consumer.Options)) *member {
	r.t.Helper()
	m, opts := r.newMember(name, change)
	zk, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: m.net.Dial})
	if err != nil {
		r.t.Fatal(err)
	}
	m.zk = zk
	m.group, err = consumer.New(zk, r.kafka.ListenAddrs(), group, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, kill := context.WithCancel(context.Background())
	m.kill = kill
	go func() {
		defer close(m.ran)
		if err := zk.Run(clocks.With(ctx, clock)); err != nil {
			r.t.Errorf("%s: session: %v", name, err)
		}
	}()
	return m.watched()
}

// owning makes a member that has a session of its own, which zk of the member is not.
func (r *rig) owning(name string, change func(*consumer.Options)) *member {
	r.t.Helper()
	m, opts := r.newMember(name, change)
	opts.Session.Dial = m.net.Dial
	var err error
	m.group, err = consumer.NewGroup([]string{zktest.VirtualAddress}, r.kafka.ListenAddrs(), group, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	m.kill = func() {}
	close(m.ran)
	return m.watched()
}

// newMember makes a member without a group, and the options for one.
func (r *rig) newMember(name string, change func(*consumer.Options)) (*member, consumer.Options) {
	m := &member{r: r, t: r.t, name: name, h: &recorder{}, net: r.zknet.Client(name), ran: make(chan struct{}), errs: make(chan struct{})}
	m.log = &log{name: name}
	m.h.done = m.log.done
	opts := consumer.Options{Name: name, Config: r.config(), Observer: m.log.observe}
	if change != nil {
		change(&opts)
	}
	return m, opts
}

// watched has the errors and events of a member kept, and ends it with the test.
func (m *member) watched() *member {
	go func() {
		defer close(m.errs)
		for err := range m.group.Errors() {
			m.mu.Lock()
			m.seen = append(m.seen, err)
			m.mu.Unlock()
		}
	}()
	m.r.mu.Lock()
	m.r.logs = append(m.r.logs, m.log)
	m.r.mu.Unlock()
	m.t.Cleanup(func() {
		m.close()
		time.Sleep(time.Second)
	})
	return m
}

// start lets the member consume.
func (m *member) start(topics ...string) *member {
	if len(topics) == 0 {
		topics = []string{topic}
	}
	return m.startWith(m.h, topics...)
}

// startWith lets the member consume with a handler of the test's.
func (m *member) startWith(h sarama.ConsumerGroupHandler, topics ...string) *member {
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan error, 1)
	go func() {
		var err error
		for again := true; again && ctx.Err() == nil; again = *eagerly && err == nil {
			err = m.group.Consume(ctx, topics, h)
		}
		m.done <- err
	}()
	return m
}

// run lets the member consume by Run. What the handler does is as with ConsumeClaim.
func (m *member) run(topics ...string) *member { return m.runWith(m.h.handle, topics...) }

// runWith is run with a handler of the test's.
func (m *member) runWith(handle func(context.Context, *consumer.Partition) error, topics ...string) *member {
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan error, 1)
	if len(topics) == 0 {
		topics = []string{topic}
	}
	go func() { m.done <- m.group.Run(ctx, topics, handle) }()
	return m
}

// leave ends Consume and checks that it returned nil.
func (m *member) leave() {
	m.t.Helper()
	m.stop()
	if err := <-m.done; err != nil {
		m.t.Errorf("%s: Consume: %v", m.name, err)
	}
}

// close ends everything of the member.
func (m *member) close() {
	m.t.Helper()
	if err := m.group.Close(); err != nil && m.zk != nil { // with a session of its own it says that the member did not leave in time
		m.t.Errorf("%s: Close: %v", m.name, err)
	}
	<-m.errs
	m.kill()
	<-m.ran
}

// quit lets members leave, one after the other, and closes them then.
func quit(members ...*member) {
	for _, m := range members {
		m.t.Helper()
		m.leave()
	}
	for _, m := range members {
		m.close()
	}
}

func (m *member) errors() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

// sessionID returns the member's ZooKeeper session.
func (m *member) sessionID() int64 { return m.zk.Current().SessionID() }

// owns returns what the member has open.
func (m *member) owns() []string {
	open := map[string]bool{}
	for _, c := range m.h.called() {
		switch what, p, _ := strings.Cut(c, " "); what {
		case "open":
			open[p] = true
		case "close":
			delete(open, p)
		}
	}
	return slices.Sorted(maps.Keys(open))
}

// until waits in virtual time.
func until(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > 5*time.Minute {
			t.Fatalf("not within 5 minutes: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// bubble runs a test in virtual time. After the last member has closed, sarama's fetch loops take up to 100 ms to notice.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(time.Second)
	})
}

// inRig runs a test in a bubble, on a rig whose topic has so many partitions.
func inRig(t *testing.T, partitions int32, test func(t *testing.T, r *rig)) {
	t.Helper()
	bubble(t, func(t *testing.T) { test(t, newRig(t, partitions)) })
}

// check lets the checker of event logs judge what happened.
func (r *rig) check(duplicates bool) *eventlog.Report {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var logs []eventlog.Log
	for _, l := range r.logs {
		logs = append(logs, eventlog.Log{Name: l.name, Events: l.events(), Killed: l.cut})
	}
	rep := eventlog.Check(logs, eventlog.Expect{End: r.sent})
	if !rep.OK() {
		r.t.Errorf("%s", rep)
	}
	if !duplicates && rep.Duplicates > 0 {
		r.t.Errorf("%d duplicates: %s", rep.Duplicates, rep)
	}
	return rep
}

func total(ms ...*member) int {
	n := 0
	for _, m := range ms {
		n += m.h.count()
	}
	return n
}
