package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// settleLimit is how long a group may take to own everything: generous, since what it took is reported, and what must hold
// is asserted by the scenario.
const settleLimit = 60 * time.Second

// options say how a [fleet] is made; the zero value is a group of no members yet on what all scenarios share.
type options struct {
	zookeeper  string         // what members are given as --zookeeper; "" is the shared ensemble, all three
	kafka      *servers.Kafka // nil is the shared broker
	partitions int            // 0 is 12
	timeout    time.Duration  // of sessions; 0 is the package's
	beat       time.Duration  // each partition gets a message this often; 0 is 50 ms
	flags      []string       // more flags of all members
}

// fleet is the processes of one group, the dead included, and its producer.
type fleet struct {
	t      *testing.T
	topic  string // the group has the same name
	opts   options
	dir    string // of the event logs
	kafka  *servers.Kafka
	feed   *feeder
	all    []*member // in the order of their start
	faults int

	exempt    []string // for the checker: overlaps that are not held against anybody
	robberies []robbery
	wiped     []eventlog.Span // when ZooKeeper lost its data
}

// member is one process.
type member struct {
	*members.Process

	f      *fleet
	down   bool                // killed, or asked to leave: it is not expected to own anything
	paused bool                // the same, for as long as it is
	over   bool                // it has ended, and how was looked at
	held   map[int32]*ownTerm  // what it owns, as its log tells
	events []eventlog.Event    // all read so far
	next   map[int32]int64     // the offset after the last message that it was handed
	count  map[string]int      // events by kind
	seen   map[string]struct{} // sessions
}

// ownTerm is what a log tells of something owned.
type ownTerm struct {
	claimed int64 // when
	token   int64
	first   int64 // when the first message was handed out, or 0
}

var nameOfTest = strings.NewReplacer("/", "-", "#", "-")

// newFleet makes a group named after the test, with a topic and a producer that sends to each partition all the time.
func newFleet(t *testing.T, opts options) *fleet {
	t.Helper()
	if opts.partitions == 0 {
		opts.partitions = 12
	}
	if opts.timeout == 0 {
		opts.timeout = timeout
	}
	if opts.beat == 0 {
		opts.beat = 50 * time.Millisecond
	}
	if opts.zookeeper == "" {
		opts.zookeeper = strings.Join(sharedZooKeeper(t).Addrs(), ",")
	}
	if opts.kafka == nil {
		opts.kafka = sharedKafka(t)
	}
	f := &fleet{t: t, topic: nameOfTest.Replace(t.Name()), opts: opts, dir: logDir(t), kafka: opts.kafka}
	f.kafka.CreateTopic(f.topic, int32(opts.partitions))
	f.feed = startFeeder(t, f.kafka.Brokers(), f.topic, opts.partitions, opts.beat)
	t.Cleanup(f.reportFaults)
	return f
}

// how changes how one process is started.
type how func(s *start)

type start struct {
	zookeeper string
	flags     []string
}

// via gives a process another way to ZooKeeper than the others have: a proxy, say.
func via(zookeeper string) how { return func(s *start) { s.zookeeper = zookeeper } }

// with gives a process more flags.
func with(flags ...string) how { return func(s *start) { s.flags = append(s.flags, flags...) } }

// start starts a process; names may repeat.
func (f *fleet) start(name string, hows ...how) *member {
	f.t.Helper()
	s := start{zookeeper: f.opts.zookeeper}
	for _, h := range hows {
		h(&s)
	}
	args := append([]string{
		"--zookeeper", s.zookeeper, "--kafka", strings.Join(f.kafka.Brokers(), ","), "--group", f.topic, "--topic", f.topic,
		"--session-timeout", f.opts.timeout.String(),
	}, f.opts.flags...)
	log := filepath.Join(f.dir, fmt.Sprintf("%02d-%s.jsonl", len(f.all), name))
	m := &member{
		Process: members.Start(f.t, demo, name, log, append(args, s.flags...)...), f: f,
		held: map[int32]*ownTerm{}, next: map[int32]int64{}, count: map[string]int{}, seen: map[string]struct{}{},
	}
	f.all = append(f.all, m)
	return m
}

// startAll starts n processes m0, m1 … and waits until they own everything.
func (f *fleet) startAll(n int, hows ...how) []*member {
	f.t.Helper()
	var list []*member
	for i := range n {
		list = append(list, f.start(fmt.Sprintf("m%d", i), hows...))
	}
	begun := time.Now()
	f.settle()
	f.t.Log("settled after", time.Since(begun))
	return list
}

// fault notes that something is broken now.
func (f *fleet) fault(kind string) {
	f.faults++
	injected.add(kind)
}

func (f *fleet) reportFaults() { f.t.Attr("faults", fmt.Sprint(f.faults)) }

// Kill ends a process as a crash does.
func (m *member) Kill() {
	m.f.fault("kill -9 of a member")
	m.Process.Kill()
	m.down = true
}

// Terminate asks a process to leave.
func (m *member) Terminate() {
	m.Process.Terminate()
	m.down = true
}

// Stop asks a process to leave and waits until it has.
func (m *member) Stop() {
	m.f.t.Helper()
	m.Terminate()
	m.WaitLeft(m.f.t)
}

// Pause stops a process in its tracks and returns the time.
func (m *member) Pause() int64 {
	m.f.fault("SIGSTOP of a member")
	m.paused = true
	return m.Process.Pause()
}

// Resume lets it go on and returns the time just before.
func (m *member) Resume() int64 {
	m.paused = false
	return m.Process.Resume()
}

// works says whether a process is expected to own something.
func (m *member) works() bool { return !m.down && !m.paused }

// sessions is how many ZooKeeper sessions it has had.
func (m *member) sessions() int { return len(m.seen) }

// after returns the first event of one of the kinds that was logged after a time.
func (m *member) after(since int64, kinds ...string) (eventlog.Event, bool) {
	for _, e := range m.events {
		if e.T > since && slices.Contains(kinds, e.Event) {
			return e, true
		}
	}
	return eventlog.Event{}, false
}

// countAfter counts events of a kind that were logged after a time.
func (m *member) countAfter(since int64, kind string) int {
	n := 0
	for _, e := range m.events {
		if e.T > since && e.Event == kind {
			n++
		}
	}
	return n
}

// rebalances counts the views after a time for which it took or gave up something.
func (m *member) rebalances(since int64) (n int) {
	acted := true
	for _, e := range m.events {
		switch e.Event {
		case eventlog.Snapshot:
			acted = false
		case eventlog.Revoking, eventlog.Claimed:
			if !acted && e.T > since {
				n++
			}
			acted = true
		}
	}
	return n
}

// read takes in what the logs have gained.
func (f *fleet) read() {
	f.t.Helper()
	for _, m := range f.all {
		for _, e := range m.Read(f.t) {
			m.take(e)
		}
	}
}

func (m *member) take(e eventlog.Event) {
	m.events = append(m.events, e)
	m.count[e.Event]++
	if e.Session != "" {
		m.seen[e.Session] = struct{}{}
	}
	switch e.Event {
	case eventlog.Claimed:
		m.held[*e.Partition] = &ownTerm{claimed: e.T, token: e.Token}
	case eventlog.Message:
		m.next[*e.Partition] = max(m.next[*e.Partition], *e.Offset+1)
		if own := m.held[*e.Partition]; own != nil && own.first == 0 {
			own.first = e.T
		}
	case eventlog.Released, eventlog.Lost, eventlog.Untrusted, eventlog.Left:
		if e.Partition != nil {
			delete(m.held, *e.Partition)
		} else {
			clear(m.held)
		}
	}
}

// working returns the processes that are expected to own something.
func (f *fleet) working() []*member {
	var list []*member
	for _, m := range f.all {
		if m.works() {
			list = append(list, m)
		}
	}
	return list
}

// shares is what the function gives to members: the owner of each partition.
func (f *fleet) shares(names ...string) map[int32]string {
	f.t.Helper()
	var in allocfn.Input
	for _, name := range slices.Sorted(slices.Values(names)) {
		in.Members = append(in.Members, allocfn.Member{Name: name})
	}
	var items []string
	for _, id := range f.ids() {
		items = append(items, f.partition(id))
	}
	in.Partitions, in.Places, _ = allocfn.ParseAll(items)
	owners, err := allocfn.Call(allocfn.RoundRobin(), in)
	if err != nil {
		f.t.Fatal(err)
	}
	shares := map[int32]string{}
	for i, owner := range owners {
		shares[in.Partitions[i].ID] = in.Members[owner].Name
	}
	return shares
}

// moved lists the partitions that have another owner when one of some members is away.
func (f *fleet) moved(away string, names ...string) (list []int32) {
	f.t.Helper()
	with := f.shares(names...)
	without := f.shares(slices.DeleteFunc(names, func(name string) bool { return name == away })...)
	for _, id := range f.ids() {
		if with[id] != without[id] {
			list = append(list, id)
		}
	}
	return list
}

// owned says whether the working processes own everything, each what the function gives it, and have been handed a message
// on each partition. (Shares that are even are not enough: they are for a moment while views differ.)
func (f *fleet) owned() bool {
	names, members, total := []string{}, map[string]*member{}, 0
	for _, m := range f.working() {
		names = append(names, m.Name)
		members[m.Name] = m
		total += len(m.held)
	}
	if len(names) == 0 || total != f.opts.partitions {
		return false
	}
	for id, owner := range f.shares(names...) {
		if own := members[owner].held[id]; own == nil || own.first == 0 {
			return false
		}
	}
	return true
}

// settle waits until the working processes own everything.
func (f *fleet) settle() {
	f.t.Helper()
	f.until("all is owned", f.owned)
}

// until waits for something that the logs tell.
func (f *fleet) until(what string, ok func() bool) {
	f.t.Helper()
	wait.Until(f.t, settleLimit, func() bool { f.alive(); f.read(); return ok() }, func() string { return what + ": " + f.String() })
}

// ids lists all partitions.
func (f *fleet) ids() (ids []int32) {
	for id := range f.opts.partitions {
		ids = append(ids, int32(id))
	}
	return ids
}

// partition names a partition in znodes.
func (f *fleet) partition(id int32) string { return fmt.Sprintf("%s:%d", f.topic, id) }

// alive says that no process has ended that is expected to work.
func (f *fleet) alive() {
	f.t.Helper()
	for _, m := range f.working() {
		select {
		case <-m.Done():
			f.t.Fatalf("%s has ended: %v\n%s", m.Name, m.Wait(), m.Log())
		default:
		}
	}
}

// String tells who owns what.
func (f *fleet) String() string {
	var b strings.Builder
	for i, m := range f.all {
		state := ""
		switch {
		case m.down:
			state = " (down)"
		case m.paused:
			state = " (paused)"
		}
		fmt.Fprintf(&b, "%02d-%s%s:", i, m.Name, state)
		for _, id := range slices.Sorted(maps.Keys(m.held)) {
			fmt.Fprintf(&b, " %d", id)
			if m.held[id].first == 0 {
				b.WriteString("?") // nothing handed out yet
			}
		}
		if n := len(m.events); n > 0 {
			fmt.Fprintf(&b, " (last: %s)", m.events[n-1].Event)
		}
		b.WriteString("; ")
	}
	return b.String()
}

// measured is what a fault did to the group.
type measured struct {
	at         int64         // when it began
	detect     time.Duration // until the first that noticed: was revoked, lost its trust or a claim, or agreed on a new view
	owned      time.Duration // until the last claim after which all was owned
	rebalances int           // views for which a working process took or gave up something, the most of any
}

// measure breaks something by do, waits until all is owned again, and reports under a name what it took.
func (f *fleet) measure(name string, do func()) measured {
	f.t.Helper()
	f.read()
	at := members.Monotonic()
	do()
	f.settle()
	r := f.since(at)
	f.t.Attr(name, r.String())
	return r
}

// since is what happened from a time on until now.
func (f *fleet) since(at int64) measured {
	r := measured{at: at}
	first := int64(0)
	for _, m := range f.all {
		newcomer := len(m.events) == 0 || m.events[0].T > at
		if e, ok := m.after(at, eventlog.Snapshot, eventlog.Untrusted, eventlog.Lost, eventlog.Revoking); ok && !newcomer && (first == 0 || e.T < first) {
			first = e.T
		}
		if !m.works() {
			continue
		}
		r.rebalances = max(r.rebalances, m.rebalances(at))
		for _, own := range m.held {
			r.owned = max(r.owned, time.Duration(own.claimed-at))
		}
	}
	if first > 0 {
		r.detect = time.Duration(first - at)
	}
	return r
}

func (r measured) String() string {
	return fmt.Sprintf("detected %v, owned %v, rebalances %d", ms(r.detect), ms(r.owned), r.rebalances)
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// exemptOverlap tells the checker that a partition may have two owners for a while: a third party has removed the claim, the
// member or the session of one of them, see "not promised" in the documentation.
func (f *fleet) exemptOverlap(id int32, from, to int64) {
	f.exempt = append(f.exempt, fmt.Sprintf("%s:%d=%d..%d", f.topic, id, from, to))
}

// caughtUp says whether every message that Kafka has was handed to somebody.
func (f *fleet) caughtUp() bool {
	for id, end := range f.feed.ends() {
		next := int64(0)
		for _, m := range f.all {
			next = max(next, m.next[id])
		}
		if next < end {
			return false
		}
	}
	return true
}

// lag tells which messages nobody was handed.
func (f *fleet) lag() string {
	var b strings.Builder
	for id, end := range f.feed.ends() {
		next := int64(0)
		for _, m := range f.all {
			next = max(next, m.next[id])
		}
		if next < end {
			fmt.Fprintf(&b, "%d: handed out up to %d of %d; ", id, next, end)
		}
	}
	return b.String() + f.String()
}

// finish stops producing, waits until everything was handed out, lets all members leave, and has the logs judged.
func (f *fleet) finish() *eventlog.Report {
	f.t.Helper()
	f.feed.stop()
	wait.Until(f.t, settleLimit, func() bool { f.read(); return f.caughtUp() }, f.lag)
	return f.judge()
}

// judge lets all members leave and has the logs judged; everything that was produced must have been handed out.
func (f *fleet) judge() *eventlog.Report {
	f.t.Helper()
	f.feed.stop()
	for _, m := range f.working() {
		m.down = true
		m.Process.Terminate()
	}
	for _, m := range f.all {
		if m.Killed == 0 && !m.over {
			m.WaitLeft(f.t)
		}
	}
	f.read()
	return f.check(f.feed.ends())
}

// feeder sends messages to all partitions of a topic.
type feeder struct {
	end      context.CancelFunc
	done     chan struct{} // closed when all was answered
	acked    []atomic.Int64
	failed   atomic.Int64
	answered atomic.Int64
	stopped  sync.Once
	t        *testing.T
}

func startFeeder(t *testing.T, brokers []string, topic string, partitions int, beat time.Duration) *feeder {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = beat / 2
	config.Producer.Retry.Max = 100 // a new topic's leader may be unknown for a moment
	config.Net.MaxOpenRequests = 1
	p, err := sarama.NewAsyncProducer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &feeder{end: cancel, done: make(chan struct{}), acked: make([]atomic.Int64, partitions), t: t}
	go func() {
		defer p.AsyncClose()
		every := time.NewTicker(beat)
		defer every.Stop()
		// A producer that is closing drops what it would have to send again, so all has to be answered before.
		for sent := int64(0); ctx.Err() == nil || f.answered.Load() < sent; <-every.C {
			if ctx.Err() != nil {
				continue
			}
			for id := range partitions {
				p.Input() <- &sarama.ProducerMessage{Topic: topic, Partition: int32(id), Value: sarama.StringEncoder("x")}
				sent++
			}
		}
	}()
	var answers sync.WaitGroup
	answers.Go(func() {
		for m := range p.Successes() {
			f.answered.Add(1)
			if end := &f.acked[m.Partition]; m.Offset >= end.Load() {
				end.Store(m.Offset + 1)
			}
		}
	})
	answers.Go(func() {
		for range p.Errors() {
			f.answered.Add(1)
			f.failed.Add(1)
		}
	})
	go func() { defer close(f.done); answers.Wait() }()
	t.Cleanup(f.stop)
	return f
}

// stop ends producing and returns when all was answered.
func (f *feeder) stop() {
	f.stopped.Do(func() {
		f.end()
		<-f.done
		if n := f.failed.Load(); n > 0 {
			f.t.Errorf("Kafka did not take %d messages", n)
		}
	})
}

// ends returns the offset after the last message of each partition that Kafka has acknowledged.
func (f *feeder) ends() map[int32]int64 {
	ends := map[int32]int64{}
	for id := range f.acked {
		ends[int32(id)] = f.acked[id].Load()
	}
	return ends
}

func sorted(list []int64) []int64 {
	slices.Sort(list)
	return list
}
