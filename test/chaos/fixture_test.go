package chaos_test

import (
	"fmt"
	"maps"
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

// settleLimit is how long a group may take to own everything: generous, since what it took is reported, and what must hold is
// asserted by the scenario. A machine that has far too much to do takes sessions from members again and again.
const settleLimit = 3 * time.Minute

// options say how a [fleet] is made; the zero value is a group of no members yet on what all scenarios share.
type options struct {
	name       string         // tells the groups of one test apart
	zookeeper  string         // what members are given as --zookeeper; "" is the shared ensemble, all three
	kafka      *servers.Kafka // nil is the shared broker
	partitions int            // 0 is 12
	timeout    time.Duration  // of sessions; 0 is the package's
	granted    time.Duration  // the longest timeout of sessions that servers grant, as members are told; 0 is timeout
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
	if opts.granted == 0 {
		opts.granted = opts.timeout
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

// read takes in what the logs have gained.
func (f *fleet) read() {
	f.t.Helper()
	for _, m := range f.all {
		for _, e := range m.Read(f.t) {
			m.take(e)
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
		m.alive()
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

// caughtUp says whether somebody has done with every message that Kafka has.
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

// lag tells which messages nobody has done with.
func (f *fleet) lag() string {
	var b strings.Builder
	for id, end := range f.ends() {
		next := int64(0)
		for _, m := range f.all {
			next = max(next, m.next[id])
		}
		if next < end {
			fmt.Fprintf(&b, "%d: done up to %d of %d; ", id, next, end)
		}
	}
	return b.String() + f.String()
}

// finish stops producing, waits until everything is done, lets all members leave, and has the logs judged.
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
