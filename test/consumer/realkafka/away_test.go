package realkafka_test

import (
	"context"
	"errors"
	"net"
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

// traffic counts what members do on their connections to Kafka: sarama writes each request in one piece.
type traffic struct {
	dials, writes atomic.Int64
}

// Dial opens a connection that is counted.
func (c *traffic) Dial(network, address string) (net.Conn, error) {
	c.dials.Add(1)
	nc, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &countedConn{nc, c}, nil
}

type countedConn struct {
	net.Conn
	of *traffic
}

// Write counts a request.
func (c *countedConn) Write(b []byte) (int, error) {
	c.of.writes.Add(1)
	return c.Conn.Write(b)
}

// count makes members count what they do.
func (r *rig) count() *traffic {
	c := new(traffic)
	r.config = memberConfig()
	r.config.Net.Proxy.Enable, r.config.Net.Proxy.Dialer = true, c
	return c
}

// watch lets time pass and returns how many connections were dialed and requests written in each second of it.
func (c *traffic) watch(t *testing.T, d time.Duration) (dials, requests float64) {
	t.Helper()
	begun, before, written := time.Now(), c.dials.Load(), c.writes.Load()
	wait.Pass(t, d)
	seconds := time.Since(begun).Seconds()
	dials, requests = float64(c.dials.Load()-before)/seconds, float64(c.writes.Load()-written)/seconds
	t.Logf("%.1f connections and %.1f requests a second in %v", dials, requests, d)
	return dials, requests
}

// away is how long servers are away.
func away() time.Duration {
	if *full {
		return time.Minute
	}
	return 5 * time.Second
}

// goesOn lets the members leave, and has another go on at the end of all partitions: positions were kept.
func (r *rig) goesOn(n int32, leaving ...*member) {
	r.t.Helper()
	for _, m := range leaving {
		m.leave()
		if reset := slices.ContainsFunc(m.errors(), func(err error) bool { return errors.Is(err, consumer.ErrOffsetReset) }); reset {
			r.t.Errorf("a position was reset: %v", m.errors())
		}
	}
	c := r.member("last")
	until(r.t, "the last member has all", func() bool { return c.open.Load() == int64(n) })
	r.produceOnce(1, n)
	until(r.t, "the last messages", func() bool { return c.count.Load() >= int64(n) })
	leave(c)
	if got := c.count.Load(); got != int64(n) {
		r.t.Errorf("the last member got %d messages, want %d", got, n)
	}
}

// produceOnce writes each message once, whatever happens to brokers.
func (r *rig) produceOnce(messages int, partitions int32) {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for _, id := range ids(partitions) {
		for range messages {
			records = append(records, &kgo.Record{Topic: r.topic, Partition: id, Value: []byte("value")})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// journal counts how often members were given each message.
type journal struct {
	mu    sync.Mutex
	given map[int32]map[int64]int // by partition and offset
}

// note has members that are made from now on write to a journal.
func (r *rig) note() *journal {
	j := &journal{given: map[int32]map[int64]int{}}
	r.observer = func(e consumer.Event) {
		if e.Kind != consumer.Message {
			return
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.given[e.Partition] == nil {
			j.given[e.Partition] = map[int64]int{}
		}
		j.given[e.Partition][e.Offset]++
	}
	return j
}

// compare fails the test unless members were given once what Kafka has, and Kafka has what was written.
func (j *journal) compare(r *rig, partitions int32, written int64) {
	r.t.Helper()
	client, err := sarama.NewClient(r.brokers, memberConfig())
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	j.mu.Lock()
	defer j.mu.Unlock()
	var stored int64
	for _, p := range ids(partitions) {
		end, err := client.GetOffset(r.topic, p, sarama.OffsetNewest)
		if err != nil {
			r.t.Fatal(err)
		}
		stored += end
		for offset := range end {
			if n := j.given[p][offset]; n != 1 {
				r.t.Errorf("message %d of partition %d was handed out %d times", offset, p, n)
			}
		}
		if n := int64(len(j.given[p])); n > end {
			r.t.Errorf("%d messages of partition %d were handed out, Kafka has %d", n, p, end)
		}
	}
	if stored != written {
		r.t.Errorf("Kafka has %d messages, %d were written: the test's producer is wrong", stored, written)
	}
}

// maxAway bounds what a member does each second while a server is away. A long poll each 100 ms is 10 requests.
const maxAway = 15

// two starts two members, and returns when they have read n messages of each partition.
func (r *rig) two(n int, partitions int32) (a, b *member) {
	r.t.Helper()
	a, b = r.member("a"), r.member("b")
	until(r.t, "all messages", func() bool { return total(a, b) == int64(n)*int64(partitions) && shared(partitions, a, b) })
	return a, b
}

// shared says whether two members have half of the partitions each.
func shared(partitions int32, a, b *member) bool {
	half := int64(partitions / 2)
	return a.open.Load() == half && b.open.Load() == half
}

// Kafka is away for long: nobody loses a partition, no message is lost or comes twice, and nobody storms. Then it dies under a
// commit, which ends with its connection: what the broker never took is not left in the kernel to arrive later.
func TestKafkaIsAway(t *testing.T) {
	const n = 4
	r := newRig(t, servers.KafkaOptions{}, n)
	c := r.count()
	r.produce(100, ids(n)...)
	a, b := r.two(100, n)
	r.kafka.Stop()
	if _, err := consumer.NewGroup([]string{r.zk}, r.brokers, "other", consumer.Options{}); !errors.Is(err, sarama.ErrOutOfBrokers) {
		t.Errorf("NewGroup without Kafka: %v", err)
	}
	if dials, requests := c.watch(t, away()); dials > 2*maxAway || requests > 2*maxAway {
		t.Errorf("%.1f connections and %.1f requests a second of two members", dials, requests)
	}
	r.kafka.Start()
	r.produce(100, ids(n)...)
	took := until(t, "the next messages", func() bool { return total(a, b) >= 200*n })
	t.Logf("the next messages %v after Kafka was back", took)
	if !shared(n, a, b) {
		t.Errorf("open: %d and %d", a.open.Load(), b.open.Load())
	}

	s, reported := *a.sess.Load(), len(a.errors())
	p := s.Claims()[r.topic][0]
	r.kafka.Kill()
	s.ResetOffset(r.topic, p, 5, "")
	began := time.Now()
	s.Commit()
	t.Logf("Commit without a broker returned after %v", time.Since(began))
	r.kafka.Start()
	until(t, "an error was reported", func() bool { return len(a.errors()) > reported })
	s.MarkOffset(r.topic, p, 200, "")
	s.Commit()
	r.goesOn(n, a, b)
	if got := total(a, b); got != 200*n {
		t.Errorf("%d messages, want %d", got, 200*n)
	}
}

// ZooKeeper is away for longer than sessions live: members stop and keep still, and go on at their positions when it is back.
func TestZooKeeperIsAway(t *testing.T) {
	t.Parallel()
	const n = 4
	r := sharedRig(t, servers.Kafka4, n)
	c := r.count()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 200 * time.Millisecond})
	r.zk = zk.Addr()
	r.produce(100, ids(n)...)
	a, b := r.two(100, n)
	for p := range int32(n) { // or they are handed out again: a lost claim is not committed
		until(t, "the positions are committed", func() bool { return r.committed(p) == 100 })
	}
	zk.Stop()
	until(t, "all have stopped", func() bool { return a.open.Load()+b.open.Load() == 0 })
	r.produce(100, ids(n)...)
	if dials, requests := c.watch(t, away()); dials > 2*maxAway || requests > 2*maxAway {
		t.Errorf("%.1f connections and %.1f requests a second of two members", dials, requests)
	}
	if got := total(a, b); got != 100*n {
		t.Errorf("%d messages were handed out without trust", got-100*n)
	}
	zk.Start()
	took := until(t, "the next messages", func() bool { return total(a, b) >= 200*n })
	t.Logf("the next messages %v after ZooKeeper was back", took)
	until(t, "both have their half", func() bool { return shared(n, a, b) })
	r.goesOn(n, a, b)
	if got := total(a, b); got != 200*n {
		t.Errorf("%d messages, want %d", got, 200*n)
	}
}

// One broker of three after the other is killed and comes back, while messages are written and read; without -full, one.
func TestBrokersAreKilledInTurn(t *testing.T) {
	const n = 6
	r := newRig(t, servers.KafkaOptions{Brokers: 3, Config: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",
	}}, n)
	c, j := r.count(), r.note()
	r.produceOnce(100, n)
	a, b := r.two(100, n)
	want := int64(100 * n)
	turns := r.kafka.Nodes()
	if !*full {
		turns = turns[:1]
	}
	for _, node := range turns {
		node.Kill()
		r.produceOnce(100, n)
		want += 100 * n
		took := until(t, "messages of the others", func() bool { return total(a, b) >= want })
		t.Logf("all messages %v after they were written", took)
		if _, requests := c.watch(t, 3*time.Second); requests > 2*maxAway*3 {
			t.Errorf("%.1f requests a second of two members", requests)
		}
		node.Start()
		node.WaitReady()
		r.kafka.WaitTopic(r.topic, n)
	}
	r.goesOn(n, a, b)
	j.compare(r, n, want+n)
}
