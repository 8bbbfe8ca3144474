package realkafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/servers"
)

// maxUnowned bounds how long a partition may be without an owner while a member that asks for its topic has joined. A hand-over
// takes milliseconds, and what is changed shortly after another change waits for the quiet period of 200 ms.
const maxUnowned = 3 * time.Second

// A rolling deploy adds a topic, and the next one takes it away, while messages are written to both topics all the while: no
// message is lost or processed twice, and what some member asks for is owned by one that asks, but for hand-overs.
func TestRollingDeploys(t *testing.T) {
	t.Parallel()
	const n, members = 6, 3
	r := sharedRig(t, servers.Kafka4, n)
	topic, newTopic := r.topic, r.topic+"-new"
	r.kafka.CreateTopic(newTopic, n)
	d := &deploy{rig: r, group: make([]*member, members), asks: make([][]string, members), stations: map[kiel.Partition]*station{}}
	for _, name := range []string{topic, newTopic} {
		for id := range int32(n) {
			d.stations[kiel.Partition{Topic: name, ID: id}] = &station{since: time.Now()}
		}
	}
	r.processed = d.process
	for i := range d.group {
		d.start(i, topic)
	}
	d.settle("the group begins")
	stop := d.load()
	for _, topics := range [][]string{{topic, newTopic}, {topic}} {
		for i := range d.group {
			d.replace(i, topics...)
			d.settle(fmt.Sprintf("member %d consumes %v", i, topics))
		}
	}
	d.replace(0, topic, newTopic) // what was written to the new topic meanwhile is read, too
	d.settle("one member consumes the new topic again")
	stop()
	until(t, "all messages", d.complete)
	for i := range d.group {
		d.end(i)
	}
	d.report()
}

// deploy is a group whose members are replaced one by one, and what becomes of each partition.
type deploy struct {
	*rig
	group []*member

	mu       sync.Mutex
	asks     [][]string // by member: the topics of the one that has joined, nil when none has
	stations map[kiel.Partition]*station
	unowned  []time.Duration // of partitions that somebody asked for
	faults   []string
}

// station is what is known of a partition.
type station struct {
	owner     int       // member, if claimed
	claimed   bool      // there is an owner
	token     int64     // of the newest claim
	since     time.Time // when it lost its owner, or when the first member asked for its topic after that
	written   int64
	processed int64
}

// start starts a member that consumes topics.
func (d *deploy) start(i int, topics ...string) {
	d.topics = topics
	d.observer = func(e consumer.Event) { d.observe(i, topics, e) }
	d.group[i] = d.member(fmt.Sprintf("m%d", i))
}

// replace lets a member leave, and starts the next of its name.
func (d *deploy) replace(i int, topics ...string) {
	d.end(i)
	d.start(i, topics...)
}

// end lets a member leave. It must have been told of no partition of another topic.
func (d *deploy) end(i int) {
	d.t.Helper()
	d.group[i].leave()
	for _, err := range d.group[i].errors() {
		if errors.Is(err, consumer.ErrTopicMismatch) {
			d.t.Errorf("m%d: %v", i, err)
		}
	}
}

// observe hears of what members do.
func (d *deploy) observe(i int, topics []string, e consumer.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	st := d.stations[kiel.Partition{Topic: e.Topic, ID: e.Partition}]
	switch e.Kind {
	case consumer.Joined:
		for p, st := range d.stations {
			if slices.Contains(topics, p.Topic) && !d.wanted(p) {
				st.since = now
			}
		}
		d.asks[i] = topics
	case consumer.Left:
		d.asks[i] = nil
	case consumer.Claimed:
		if e.Token <= st.token || st.claimed {
			d.fault("m%d claims %s:%d with token %d after %d of m%d, which still stands: %t", i, e.Topic, e.Partition, e.Token, st.token, st.owner, st.claimed)
		}
		if !slices.Contains(topics, e.Topic) {
			d.fault("m%d claims %s:%d and consumes %v", i, e.Topic, e.Partition, topics)
		}
		d.unowned = append(d.unowned, now.Sub(st.since))
		st.owner, st.claimed, st.token = i, true, e.Token
	case consumer.Releasing, consumer.Lost:
		st.claimed, st.since = false, now
		if e.Kind == consumer.Lost {
			d.fault("m%d lost %s:%d: %v", i, e.Topic, e.Partition, e.Err)
		}
	default:
	}
}

func (d *deploy) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// wanted says whether a member that has joined asks for a partition's topic.
func (d *deploy) wanted(p kiel.Partition) bool {
	return slices.ContainsFunc(d.asks, func(topics []string) bool { return slices.Contains(topics, p.Topic) })
}

// process checks that each message is processed once, in order.
func (d *deploy) process(m *sarama.ConsumerMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.stations[kiel.Partition{Topic: m.Topic, ID: m.Partition}]
	if m.Offset != st.processed {
		d.fault("%s:%d: offset %d is processed, expected %d", m.Topic, m.Partition, m.Offset, st.processed)
	}
	st.processed = m.Offset + 1
}

// settle waits until all have joined, what somebody asks for is owned, and the rest is not.
func (d *deploy) settle(what string) {
	d.t.Helper()
	until(d.t, what, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, topics := range d.asks {
			if topics == nil {
				return false
			}
		}
		for p, st := range d.stations {
			if st.claimed != d.wanted(p) {
				return false
			}
		}
		return true
	})
}

// complete says whether all messages were processed.
func (d *deploy) complete() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, st := range d.stations {
		if st.processed < st.written {
			return false
		}
	}
	return true
}

// load writes to all partitions until stop is called.
func (d *deploy) load() (stop func()) {
	d.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(d.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			d.write(client)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		client.Close()
	})
	d.t.Cleanup(stop)
	return stop
}

// write writes a message to each partition.
func (d *deploy) write(client *kgo.Client) {
	var records []*kgo.Record
	for p := range d.stations {
		records = append(records, &kgo.Record{Topic: p.Topic, Partition: p.ID, Value: []byte("value")})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := client.ProduceSync(ctx, records...).FirstErr()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.fault("produce: %v", err)
		return
	}
	for _, r := range records {
		d.stations[kiel.Partition{Topic: r.Topic, ID: r.Partition}].written++
	}
}

// report says what was wrong, and how long partitions had no owner.
func (d *deploy) report() {
	d.t.Helper()
	for _, fault := range d.faults {
		d.t.Error(fault)
	}
	slices.Sort(d.unowned)
	median, most := d.unowned[len(d.unowned)/2], d.unowned[len(d.unowned)-1]
	d.t.Attr("unowned", fmt.Sprintf("n %d, median %v, max %v", len(d.unowned), median.Round(time.Millisecond), most.Round(time.Millisecond)))
	if most > maxUnowned {
		d.t.Errorf("a partition had no owner for %v, at most %v is allowed", most, maxUnowned)
	}
	messages := int64(0)
	for _, st := range d.stations {
		messages += st.processed
	}
	d.t.Attr("messages", fmt.Sprint(messages))
}
