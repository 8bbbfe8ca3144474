package chaos_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	name       string         // tells the groups of one test apart
	zookeeper  string         // what members are given as --zookeeper; "" is the shared ensemble, all three
	kafka      *servers.Kafka // nil is the shared broker
	partitions int            // 0 is 12
	timeout    time.Duration  // of sessions; 0 is the package's
	beat       time.Duration  // each partition gets a message this often; 0 is 50 ms
	flags      []string       // more flags of all members
}

// fleet is the members of one group, the dead included, and its producer.
type fleet struct {
	t        *testing.T
	scenario int
	topic    string // the group has the same name
	opts     options
	dir      string // of the event logs
	kafka    *servers.Kafka
	feeds    []*feeder
	all      []*member // in the order of their start
	faults   int
	added    map[int32]int64 // since when partitions are there that were added

	incidents []*incident
	unsettled bool  // since the last of them
	settledAt int64 // when all was owned, last; or 0
	ended     int64 // when all members were asked to leave
	reported  bool  // the figures

	exempt    []string // for the checker: overlaps that are not held against anybody
	robberies []robbery
	wiped     []eventlog.Span // when ZooKeeper lost its data
}

// member is one process, or lives in this one.
type member struct {
	*members.Process // of one that lives in this process no more than the name and the log of events

	f      *fleet
	hand   *hand                // of one that lives in this process
	asked  int64                // when it was asked to leave, or 0
	down   bool                 // killed, or asked to leave: it is not expected to own anything
	paused bool                 // the same, for as long as it is
	over   bool                 // it has ended, and how was looked at
	held   map[int32]*ownTerm   // what it owns, as its log tells
	terms  map[int32][]*ownTerm // what it has ever owned
	events []eventlog.Event     // all read so far
	next   map[int32]int64      // the offset after the last message that it was handed
	count  map[string]int       // events by kind
	seen   map[string]struct{}  // sessions
}

// ownTerm is what a log tells of something owned.
type ownTerm struct {
	claimed int64 // when
	token   int64
	first   int64 // when the first message was handed out, or 0
	ended   int64 // or 0
}

var nameOfTest = strings.NewReplacer("/", "-", "#", "-", " ", "-")

// newFleet makes a group named after the test, with a topic and a producer that sends to each partition all the time. The test
// must end with [fleet.finish] or [fleet.judge], and report the figures of a scenario by that.
func newFleet(t *testing.T, scenario int, opts options) *fleet {
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
	f := &fleet{t: t, scenario: scenario, opts: opts, dir: logDir(t), kafka: opts.kafka, added: map[int32]int64{}}
	f.topic = unused(nameOfTest.Replace(f.name()))
	f.kafka.CreateTopic(f.topic, int32(opts.partitions))
	f.feed(f.ids())
	t.Cleanup(func() {
		f.attr("faults", fmt.Sprint(f.faults))
		if !f.reported && !t.Failed() {
			t.Error("a scenario without figures")
		}
	})
	return f
}

var used = struct {
	sync.Mutex
	times map[string]int
}{times: map[string]int{}}

// unused returns a name for a group and a topic: all runs of a test share their servers.
func unused(name string) string {
	used.Lock()
	defer used.Unlock()
	if used.times[name]++; used.times[name] > 1 {
		name += fmt.Sprintf("-run-%d", used.times[name])
	}
	return name
}

// name is the name of the test, and of the group if there are several.
func (f *fleet) name() string {
	if f.opts.name == "" {
		return f.t.Name()
	}
	return f.t.Name() + "-" + f.opts.name
}

// attr reports something of this group.
func (f *fleet) attr(key, value string) {
	f.t.Helper()
	if f.opts.name != "" {
		key = f.opts.name + "-" + key
	}
	f.t.Attr(nameOfTest.Replace(key), value)
}

// feed has a producer send messages to some partitions all the time.
func (f *fleet) feed(ids []int32) {
	f.t.Helper()
	f.feeds = append(f.feeds, startFeeder(f.t, f.kafka.Brokers(), f.topic, ids, f.opts.beat))
}

// stopFeeding returns when Kafka has all messages.
func (f *fleet) stopFeeding() {
	for _, feed := range f.feeds {
		feed.stop()
	}
}

// ends returns the offset after the last message of each partition that Kafka has acknowledged.
func (f *fleet) ends() map[int32]int64 {
	ends := map[int32]int64{}
	for _, feed := range f.feeds {
		for id, end := range feed.acked {
			ends[id] = end.Load()
		}
	}
	return ends
}

// how changes how one process is started.
type how func(s *start)

type start struct {
	zookeeper string
	flags     []string
	inside    inside
}

// via gives a process another way to ZooKeeper than the others have: a proxy, say.
func via(zookeeper string) how { return func(s *start) { s.zookeeper = zookeeper } }

// with gives a process more flags.
func with(flags ...string) how { return func(s *start) { s.flags = append(s.flags, flags...) } }

// start starts a process; names may repeat.
func (f *fleet) start(name string, hows ...how) *member {
	f.t.Helper()
	s := f.how(hows)
	args := append([]string{
		"--zookeeper", s.zookeeper, "--kafka", strings.Join(f.kafka.Brokers(), ","), "--group", f.topic, "--topic", f.topic,
		"--session-timeout", f.opts.timeout.String(),
	}, f.opts.flags...)
	return f.enlist(members.Start(f.t, demo, name, f.log(name), append(args, s.flags...)...), nil)
}

// how gathers how a member is started.
func (f *fleet) how(hows []how) start {
	s := start{zookeeper: f.opts.zookeeper}
	for _, h := range hows {
		h(&s)
	}
	return s
}

// log is the file for the events of a member that is about to start.
func (f *fleet) log(name string) string {
	if f.settledAt != 0 { // who starts a group is no incident
		f.happens("start of a member", members.Monotonic())
	}
	return filepath.Join(f.dir, fmt.Sprintf("%02d-%s.jsonl", len(f.all), name))
}

func (f *fleet) enlist(p *members.Process, h *hand) *member {
	m := &member{
		Process: p, hand: h, f: f, held: map[int32]*ownTerm{}, terms: map[int32][]*ownTerm{}, next: map[int32]int64{},
		count: map[string]int{}, seen: map[string]struct{}{},
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

// Kill ends a process as a crash does.
func (m *member) Kill() {
	m.f.fault("kill -9 of a member")
	m.Process.Kill()
	m.down = true
}

// Terminate asks a process to leave.
func (m *member) Terminate() {
	m.f.happens("a member is asked to leave", members.Monotonic())
	m.leaves()
}

// leaves asks a member to leave.
func (m *member) leaves() {
	m.asked, m.down = members.Monotonic(), true
	if m.hand != nil {
		m.hand.leave()
	} else {
		m.Process.Terminate()
	}
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
func (m *member) rebalances(since int64) int { return m.rebalancesIn(since, math.MaxInt64) }

// rebalancesIn counts those between two times.
func (m *member) rebalancesIn(from, to int64) (n int) {
	acted := true
	for _, e := range m.events {
		switch e.Event {
		case eventlog.Snapshot:
			acted = false
		case eventlog.Revoking, eventlog.Claimed:
			if !acted && e.T > from && e.T <= to {
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
		own := &ownTerm{claimed: e.T, token: e.Token}
		m.held[*e.Partition] = own
		m.terms[*e.Partition] = append(m.terms[*e.Partition], own)
	case eventlog.Message:
		m.next[*e.Partition] = max(m.next[*e.Partition], *e.Offset+1)
		if own := m.held[*e.Partition]; own != nil && own.first == 0 {
			own.first = e.T
		}
	case eventlog.Released, eventlog.Lost, eventlog.Untrusted, eventlog.Left:
		at := e.T
		if e.Event == eventlog.Untrusted && e.Since != 0 {
			at = min(at, e.Since)
		}
		for id, own := range m.held {
			if e.Partition == nil || *e.Partition == id {
				own.ended = at
				delete(m.held, id)
			}
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

// settle waits until the working processes own everything.
func (f *fleet) settle() {
	f.t.Helper()
	f.until("all is owned", f.owned)
	f.unsettled, f.settledAt = false, members.Monotonic()
	if len(f.incidents) > 0 {
		f.last().settled = f.settledAt
	}
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

// exemptOverlap tells the checker that a partition may have two owners for a while: a third party has removed the claim, the
// member or the session of one of them, see "not promised" in the documentation.
func (f *fleet) exemptOverlap(id int32, from, to int64) {
	f.exempt = append(f.exempt, fmt.Sprintf("%s:%d=%d..%d", f.topic, id, from, to))
}

// caughtUp says whether every message that Kafka has was handed to somebody.
func (f *fleet) caughtUp() bool {
	for id, end := range f.ends() {
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
	for id, end := range f.ends() {
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
	f.stopFeeding()
	wait.Until(f.t, settleLimit, func() bool { f.read(); return f.caughtUp() }, f.lag)
	return f.judge()
}

// judge lets all members leave and has the logs judged; everything that was produced must have been handed out.
func (f *fleet) judge() *eventlog.Report {
	f.t.Helper()
	f.stopFeeding()
	f.ended = members.Monotonic()
	for _, m := range f.working() {
		m.leaves()
	}
	for _, m := range f.all {
		if m.Killed == 0 && !m.over {
			m.WaitLeft(f.t)
		}
	}
	f.read()
	report := f.check(f.ends())
	f.figures(report)
	return report
}
