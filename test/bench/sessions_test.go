package bench_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// crowd is how many members of one group start within a second.
const crowd = 50

// groupKind is whose group is measured, and which strategies its configuration has.
type groupKind struct {
	name              string
	ours, incremental bool
}

var groupKinds = []groupKind{
	{"sarama, eager", false, false}, {"sarama, cooperative", false, true}, {"ours, eager", true, false}, {"ours, incremental", true, true},
}

// sessionFigures are those of one kind of groups.
type sessionFigures struct {
	everywhere, gaps []time.Duration // of each join: until the first message of the last partition; the median of the partitions' gaps
	twice, lost      int             // messages of the rolling restarts
	sessions         []int           // of each member of the crowd
}

// TestSessions measures what rebalances cost groups of both kinds, of sarama's and ours, on real servers: the fifth member joins
// four that share 64 partitions; three members are restarted one after the other; fifty start within a second.
func TestSessions(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	produce(t, kafka.Brokers(), beat)
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tjoin: first message everywhere\tgap of a partition\tmessages twice, lost in rolling restarts\tsessions of a member of fifty: most, mean")
	for i, kind := range groupKinds {
		r := &sessionRig{t: t, kind: kind, zookeeper: zk.Addrs(), brokers: kafka.Brokers(), group: fmt.Sprintf("sessions-%d", i)}
		var f sessionFigures
		for range *rounds {
			r.join(&f)
		}
		r.restart(&f)
		r.start(&f)
		sum := 0
		for _, n := range f.sessions {
			sum += n
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d, %d\t%d, %.1f\n", kind.name, spread(f.everywhere), spread(f.gaps), f.twice, f.lost,
			slices.Max(f.sessions), float64(sum)/float64(len(f.sessions)))
		if kind.ours && f.twice+f.lost > 0 {
			t.Errorf("%s: %d messages twice and %d lost in rolling restarts", kind.name, f.twice, f.lost)
		}
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d partitions, a message each %v a partition, one process, one server of each kind; median and worst of %d joins:\n%s", partitions, beat, *rounds, &text)
}

// sessionRig makes members of one kind, which note what they handle.
type sessionRig struct {
	t                  *testing.T
	kind               groupKind
	zookeeper, brokers []string
	group              string
	groups             int  // how many there have been
	static             bool // of ours: members are static

	mu    sync.Mutex
	since time.Time // gaps count from here
	parts [partitions]handledPart
	seen  map[handledMessage]int
	moved func(from, to *sessionMember) // when not nil, it is called when a partition has another owner than before, under mu
}

// handledPart is how a partition is handled.
type handledPart struct {
	owner       *sessionMember
	first, last time.Time // the first message of the present ConsumeClaim, zero before; the last message
	gap         time.Duration
}

type handledMessage struct {
	partition int32
	offset    int64
}

// sessionMember is one member, and its handler.
type sessionMember struct {
	r        *sessionRig
	sessions atomic.Int32
	stop     context.CancelFunc
	done     chan struct{}
}

// fresh takes the name of a group that is new, and forgets what was handled.
func (r *sessionRig) fresh() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups++
	r.since, r.parts, r.seen = time.Now(), [partitions]handledPart{}, map[handledMessage]int{}
	return fmt.Sprintf("%s-%d", r.group, r.groups)
}

// member starts a member.
func (r *sessionRig) member(group, name string) *sessionMember {
	r.t.Helper()
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetNewest
	if r.kind.incremental {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	m := &sessionMember{r: r, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		g, err := r.newGroup(group, name, c)
		if err != nil {
			r.t.Error(err)
			return
		}
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
				r.t.Errorf("%s: Consume: %v", r.kind.name, err)
				break
			}
		}
		if err := g.Close(); err != nil {
			r.t.Errorf("%s: Close: %v", r.kind.name, err)
		}
	}()
	return m
}

func (r *sessionRig) newGroup(group, name string, c *sarama.Config) (sarama.ConsumerGroup, error) {
	if !r.kind.ours {
		return sarama.NewConsumerGroup(r.brokers, group, c)
	}
	return consumer.NewGroup(r.zookeeper, r.brokers, group, consumer.Options{
		Name: name, Static: r.static, Config: c, StartAt: consumer.Latest, Session: session.Options{Timeout: 10 * tick},
	})
}

// end stops members, and waits until they have left.
func end(members ...*sessionMember) {
	for _, m := range members {
		m.stop()
	}
	for _, m := range members {
		<-m.done
	}
}

// Setup counts a session.
func (m *sessionMember) Setup(sarama.ConsumerGroupSession) error {
	m.sessions.Add(1)
	return nil
}

// Cleanup does nothing.
func (*sessionMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim marks all messages.
func (m *sessionMember) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	m.r.opened(c.Partition(), m)
	for message := range c.Messages() {
		m.r.handled(message)
		s.MarkMessage(message, "")
	}
	return nil
}

func (r *sessionRig) opened(partition int32, m *sessionMember) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.parts[partition].owner; r.moved != nil && was != nil && was != m {
		r.moved(was, m)
	}
	r.parts[partition].owner, r.parts[partition].first = m, time.Time{}
}

func (r *sessionRig) handled(m *sarama.ConsumerMessage) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.parts[m.Partition]
	if p.first.IsZero() {
		p.first = now
	}
	if p.last.After(r.since) {
		p.gap = max(p.gap, now.Sub(p.last))
	}
	p.last = now
	r.seen[handledMessage{m.Partition, m.Offset}]++
}

// settle waits until members share all partitions evenly and each has had a message. It returns when the last has had its first
// one.
func (r *sessionRig) settle(members ...*sessionMember) (last time.Time) {
	r.t.Helper()
	even := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		last = time.Time{}
		count := map[*sessionMember]int{}
		for i := range r.parts {
			p := &r.parts[i]
			if p.owner == nil || p.first.IsZero() {
				return false
			}
			count[p.owner]++
			if p.first.After(last) {
				last = p.first
			}
		}
		for _, m := range members {
			if n := count[m]; n < partitions/len(members) || n > partitions/len(members)+1 {
				return false
			}
		}
		return true
	}
	wait.Until(r.t, 2*time.Minute, even, func() string { return fmt.Sprintf("%s: %d members share the partitions", r.kind.name, len(members)) })
	return last
}

// join measures how long the fifth member of four takes, and for how long partitions stand still meanwhile.
func (r *sessionRig) join(f *sessionFigures) {
	r.t.Helper()
	group := r.fresh()
	var members []*sessionMember
	for i := range 4 {
		members = append(members, r.member(group, fmt.Sprint("m", i)))
	}
	r.settle(members...)
	wait.Pass(r.t, 12*time.Second) // what sessions have ended may be remembered for a while
	r.mu.Lock()
	r.since = time.Now()
	for i := range r.parts {
		r.parts[i].gap = 0
	}
	r.mu.Unlock()
	began := time.Now()
	members = append(members, r.member(group, "m4"))
	last := r.settle(members...)
	wait.Pass(r.t, time.Second)
	var gaps []time.Duration
	r.mu.Lock()
	for i := range r.parts {
		gaps = append(gaps, r.parts[i].gap)
	}
	r.mu.Unlock()
	slices.Sort(gaps)
	f.everywhere, f.gaps = append(f.everywhere, last.Sub(began)), append(f.gaps, gaps[len(gaps)/2])
	end(members...)
}

// restart restarts three members, one after the other, and counts the messages that were handled twice, or not at all.
func (r *sessionRig) restart(f *sessionFigures) {
	r.t.Helper()
	group := r.fresh()
	var members []*sessionMember
	for i := range 3 {
		members = append(members, r.member(group, fmt.Sprint("m", i)))
	}
	r.settle(members...)
	for i := range members {
		end(members[i])
		wait.Pass(r.t, time.Second)
		members[i] = r.member(group, fmt.Sprint("m", i))
		r.settle(members...)
		wait.Pass(r.t, time.Second)
	}
	end(members...)
	r.mu.Lock()
	defer r.mu.Unlock()
	lowest, highest := map[int32]int64{}, map[int32]int64{}
	for m, n := range r.seen {
		f.twice += n - 1
		if low, ok := lowest[m.partition]; !ok || m.offset < low {
			lowest[m.partition] = m.offset
		}
		highest[m.partition] = max(highest[m.partition], m.offset)
	}
	for p := range lowest {
		f.lost += int(highest[p] - lowest[p] + 1)
	}
	f.lost -= len(r.seen)
}

// start starts fifty members within a second, and counts the sessions of each until the group has been calm for a while.
func (r *sessionRig) start(f *sessionFigures) {
	r.t.Helper()
	group := r.fresh()
	var members []*sessionMember
	for i := range crowd {
		members = append(members, r.member(group, fmt.Sprint("m", i)))
		wait.Pass(r.t, time.Second/crowd)
	}
	r.settle(members...)
	wait.Pass(r.t, 5*time.Second)
	for _, m := range members {
		f.sessions = append(f.sessions, int(m.sessions.Load()))
	}
	end(members...)
}
