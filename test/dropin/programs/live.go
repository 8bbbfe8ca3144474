package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/wait"
)

const (
	partitions = 4
	perRound   = 25 // messages of each partition
)

// life is one run of a program.
type life struct {
	*Backend
	t       *testing.T
	kind    Kind
	program Program
	topic   string // and the group's name
	admin   sarama.ClusterAdmin
	produce *kgo.Client

	members []*member

	mu        sync.Mutex
	sent      int64              // to each partition
	processed map[string]int     // how often, by partition and offset
	by        map[string]int     // how many, by member
	sessions  map[string]int     // how many, by member
	errs      map[string][]error // from Errors, by member
	returned  map[string]error   // what the members' programs returned
}

// member is a member that runs the program.
type member struct {
	l     *life
	name  string
	end   context.CancelFunc
	ended chan struct{} // closed when the program has returned
	cut   func()
	log   warnings
	group atomic.Pointer[sarama.ConsumerGroup]
}

// status returns how a member of ours sees the group's partitions, for somebody who reads why a test has failed.
func (m *member) status() string {
	group := m.group.Load()
	if group == nil {
		return ""
	}
	ours, ok := (*group).(*consumer.Group)
	if !ok {
		return ""
	}
	text, err := json.Marshal(ours.Status())
	return fmt.Sprintf("%s: %s %v", m.name, text, err)
}

// Live lets a program live: a first member processes a round of messages. A second one joins, and the first one leaves. A third
// one joins, and the second one crashes. Then the third one stops. So each time what one had falls to one that joined later.
//
// The topic is made, and the group is named after it. All that was produced must be processed, and be committed in the end. A
// member that stops must have reported no error but [ErrNoWorker], and from then on it must report none at all and log no
// warning.
func Live(t *testing.T, b *Backend, kind Kind, topic string, program Program) {
	l := &life{
		Backend: b, t: t, kind: kind, program: program, topic: topic, processed: map[string]int{}, by: map[string]int{},
		sessions: map[string]int{}, errs: map[string][]error{}, returned: map[string]error{},
	}
	l.open()
	first := l.start("first")
	l.round("alone", perRound)

	l.work()
	second := l.start("second")
	l.join(second)
	l.round("the first and the second", perRound)
	l.work()
	first.stop()
	l.round("the second", perRound)
	t.Logf("%d of %d messages twice before the crash", l.duplicates(), partitions*l.sent)

	third := l.start("third")
	l.join(third)
	l.round("the second and the third", perRound)
	second.crash()
	l.round("the third", perRound)
	second.finish()

	third.stop()
	l.committed()
}

// open makes the topic with a message in each partition, and what the test produces with.
func (l *life) open() {
	l.t.Helper()
	link := newLink(l.DialKafka)
	admin, err := sarama.NewClusterAdmin(l.Brokers, l.config(Ours, link, nil))
	if err != nil {
		l.t.Fatal(err)
	}
	l.admin = admin
	l.t.Cleanup(func() { _ = admin.Close() })
	if err := admin.CreateTopic(l.topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
		l.t.Fatal(err)
	}
	l.produce, err = kgo.NewClient(
		kgo.SeedBrokers(l.Brokers...), kgo.Dialer(link.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.UnknownTopicRetries(-1),
	)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(l.produce.Close)
	l.send(1) // each partition has a leader that works
}

// start lets a new member run the program.
func (l *life) start(name string) *member {
	l.t.Helper()
	m := &member{l: l, name: name, ended: make(chan struct{})}
	l.members = append(l.members, m)
	kafka, zk := newLink(l.DialKafka), newLink(l.DialZooKeeper)
	m.cut = func() {
		kafka.cut()
		zk.cut()
	}
	ctx, end := context.WithCancel(context.WithoutCancel(l.t.Context()))
	m.end = end
	go func() {
		defer close(m.ended)
		err := l.program(ctx, Host{
			Make: func(config *sarama.Config) (sarama.ConsumerGroup, error) {
				g, err := l.group(l.kind, l.topic, name, m.log.logger(), kafka, zk, config)
				m.group.Store(&g)
				return g, err
			},
			Brokers: l.Brokers, Member: l.topic + "-" + name, Topic: l.topic, Pause: l.Pause,
			Process: func(message *sarama.ConsumerMessage) { l.note(name, message) },
			Report:  func(err error) { l.report(name, err) },
			Setup:   func(sarama.ConsumerGroupSession) { l.setUp(name) },
			Claimed: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) { l.claimed(name, s, c) },
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.returned[name] = err
	}()
	l.t.Cleanup(m.finish)
	return m
}

// finish ends the program and waits until it has returned.
func (m *member) finish() {
	m.end()
	<-m.ended
}

func (l *life) note(member string, m *sarama.ConsumerMessage) {
	if l.Busy > 0 {
		time.Sleep(l.Busy)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processed[fmt.Sprintf("%d/%d", m.Partition, m.Offset)]++
	l.by[member]++
}

func (l *life) report(member string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs[member] = append(l.errs[member], err)
}

func (l *life) setUp(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[member]++
}

// of returns how many messages a member has processed.
func (l *life) of(member string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[member]
}

// duplicates returns how many messages were processed more than once.
func (l *life) duplicates() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.processed {
		if times > 1 {
			n++
		}
	}
	return n
}

// round appends n messages to each partition and waits until they are processed.
func (l *life) round(what string, n int) {
	l.t.Helper()
	l.send(n)
	wait.Until(l.t, 2*time.Minute, func() bool { return len(l.unprocessed()) == 0 }, func() string {
		left := l.unprocessed()
		var text strings.Builder
		fmt.Fprintf(&text, "%s: all is processed; %d messages are not, such as %v; %s", what, len(left), left[:min(len(left), 9)], l.state())
		for _, m := range l.members {
			text.WriteString("\n" + m.status())
		}
		return text.String()
	})
}

// work appends messages for a second, if members are to be busy.
func (l *life) work() {
	l.t.Helper()
	if l.Busy > 0 {
		l.send(int(time.Second / l.Busy / partitions))
	}
}

// send appends n messages to each partition.
func (l *life) send(n int) {
	l.t.Helper()
	var records []*kgo.Record
	for p := range int32(partitions) {
		for i := range n {
			value := fmt.Sprintf("%d/%d", p, l.sent+int64(i)) // the offset
			records = append(records, &kgo.Record{Topic: l.topic, Partition: p, Key: keyOf(p), Value: []byte(value)})
		}
	}
	if err := l.produce.ProduceSync(l.t.Context(), records...).FirstErr(); err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent += int64(n)
}

// keyOf returns a key with which sarama's producers, too, choose a partition.
func keyOf(partition int32) []byte {
	for i := 0; ; i++ {
		hash := fnv.New32a()
		key := fmt.Appendf(nil, "key %d", i)
		_, _ = hash.Write(key)
		if at := int32(hash.Sum32()) % partitions; max(at, -at) == partition {
			return key
		}
	}
}

// state says what was processed, and what of the members has ended.
func (l *life) state() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("by %v in sessions %v, errors %v, programs returned %v", l.by, l.sessions, l.errs, l.returned)
}

// unprocessed returns the messages that nobody has processed.
func (l *life) unprocessed() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range partitions {
		for offset := range l.sent {
			if name := fmt.Sprintf("%d/%d", p, offset); l.processed[name] == 0 {
				names = append(names, name)
			}
		}
	}
	return names
}

// join waits until a new member processes messages.
func (l *life) join(m *member) {
	l.t.Helper()
	for began := time.Now(); l.of(m.name) == 0; l.round(m.name+" joins", 1) {
		if time.Since(began) > 2*time.Minute {
			l.t.Fatalf("%s has got no message", m.name)
		}
		wait.Pass(l.t, 100*time.Millisecond)
	}
}

// stop tells the member to stop, and waits until the program has returned.
func (m *member) stop() {
	m.l.t.Helper()
	for _, err := range m.l.took(m.name) {
		if !errors.Is(err, ErrNoWorker) {
			m.l.t.Errorf("%s: %v", m.name, err)
		}
	}
	m.log.taken()
	m.finish()
	if err := m.l.result(m.name); err != nil {
		m.l.t.Errorf("%s: the program returned %v", m.name, err)
	}
	if errs := m.l.took(m.name); len(errs) > 0 {
		m.l.t.Errorf("%s: errors when it stopped: %v", m.name, errs)
	}
	lines := slices.DeleteFunc(m.log.taken(), func(line string) bool { return strings.Contains(line, "partitions start where a policy says") }) // said a second after the start
	if len(lines) > 0 {
		m.l.t.Errorf("%s: logged when it stopped: %s", m.name, strings.Join(lines, "\n"))
	}
}

// claimed checks that a handler finds the fencing token of its partition on ours, whatever stands in between, and none on
// sarama's.
func (l *life) claimed(member string, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) {
	own, found := consumer.SessionOf(s)
	switch {
	case found != l.kind.isOurs():
		l.t.Errorf("%s: a session of ours was found: %t", member, found)
	case found && own.Token(c.Topic(), c.Partition()) == 0:
		l.t.Errorf("%s: no token of partition %d", member, c.Partition())
	}
}

// result returns what the program of a member has returned.
func (l *life) result(member string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.returned[member]
}

// took returns the errors of a member since the last call.
func (l *life) took(member string) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := l.errs[member]
	l.errs[member] = nil
	return errs
}

// crash ends the member's connections, as the end of its process does.
func (m *member) crash() { m.cut() }

// committed checks that the end of each partition is committed.
func (l *life) committed() {
	l.t.Helper()
	ids := slices.Collect(func(yield func(int32) bool) {
		for p := range int32(partitions) {
			if !yield(p) {
				return
			}
		}
	})
	stored, err := l.admin.ListConsumerGroupOffsets(l.topic, map[string][]int32{l.topic: ids})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, p := range ids {
		if block := stored.GetBlock(l.topic, p); block == nil || block.Offset != l.sent {
			l.t.Errorf("partition %d: committed %+v, want %d", p, block, l.sent)
		}
	}
}
