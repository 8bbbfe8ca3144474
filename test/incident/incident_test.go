package incident_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/wait"
)

var (
	full = flag.Bool("full", false, "have Kafka away for a minute, not only until all members have noticed it")
	keep = flag.String("keep", "", "folder in which to keep what the members leave behind, and the truth in truth.txt")
)

const (
	group      = "billing"
	topic      = "orders"
	partitions = 12
	orphan     = "audit" // the topic that nobody asks for any more
	poison     = "poison"
	timeout    = 4 * time.Second
	tick       = time.Second
	backlog    = 600              // messages behind the one that the handler hangs on
	behind     = backlog / 2      // that must be shown to wait: a channel holds 256 of them
	patience   = 2 * time.Minute  // a busy machine takes its time
	soon       = 20 * time.Second // after Kafka's return, all have noticed it: what is tried again is so every 5 s
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m,
		// sarama's meters share a goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// The feeder's producer has failed for a while; what counts that ends by itself after 10 s.
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"),
	)
}

// span is a time at which something has happened: it lies between two at which this test saw how things were.
type span struct{ from, to time.Time }

// truth is what has happened.
type truth struct {
	killed           time.Time // the owner of orders:7
	victim, owner    string    // of orders:7, before and after
	claimed          span      // by the owner after
	stuck            int32     // the partition whose handler hangs
	stuckAt          string    // with this member
	hung             time.Time
	kafkaGone, again span      // stopped, until all members had noticed; started, until it served
	recovered, kept  time.Time // all members had noticed that it was back; what they served then was kept
}

// A member is killed, a handler hangs, a topic has no taker, and Kafka is gone for a while. Whoever reads what the members leave
// behind finds who owns orders:7, since when, who owned it before and why it moved; what is stuck; how far behind it is; and what
// was down, and when it was back.
func TestIncident(t *testing.T) {
	dir := *keep
	if dir == "" {
		dir = t.ArtifactDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, dir)
	happened := w.incident()
	w.finish(happened)
	w.checkMove(happened)
	w.checkStuck(happened)
	w.checkOrphan()
	w.checkKafka(happened)
}

// incident has all of it happen.
func (w *world) incident() (happened truth) {
	t := w.t
	w.kafka.CreateTopic(topic, partitions)
	w.kafka.CreateTopic(orphan, 2)
	other := w.start("other", orphan)
	wait.Until(t, patience, other.ready, other.Log)
	for _, name := range []string{"m1", "m2", "m3"} {
		w.start(name, topic)
	}
	feeder := feed(t, w.kafka.Brokers())
	w.until("all are ready and own a third", func() bool { return w.even(4) })
	other.Stop(t)
	other.end()
	delete(w.member, "other")

	victim, _ := w.worker(7)
	happened.victim, happened.killed = victim.Name, time.Now()
	victim.Kill()
	victim.end()
	w.save(victim)
	delete(w.member, victim.Name)
	w.until("the others have it", func() bool { return w.even(6) })
	owner, _ := w.worker(7)
	happened.owner, happened.claimed = owner.Name, span{happened.killed, time.Now()}

	for happened.stuckAt, happened.stuck = owner.Name, 7; happened.stuckAt == owner.Name; { // the other one's
		happened.stuck = (happened.stuck + 1) % partitions
		m, _ := w.worker(happened.stuck)
		happened.stuckAt = m.Name
	}
	happened.hung = time.Now()
	feeder.send(t, happened.stuck, poison)
	feeder.send(t, happened.stuck, slices.Repeat([]string{"order"}, backlog)...)
	w.until("the partition falls behind", func() bool {
		_, p := w.owner(happened.stuck)
		return p != nil && p.Offsets != nil && p.Offsets.Lag >= behind
	})
	w.kafkaAway(feeder, &happened)
	w.until("the others catch up and one is stuck", func() bool { return w.stands(happened.stuck) })
	return happened
}

// kafkaAway stops Kafka until all members have noticed it, and what they serve then was kept; with -full for a minute. It returns
// when all have noticed that Kafka is back.
func (w *world) kafkaAway(feeder *feeder, happened *truth) {
	t := w.t
	feeder.mu.Lock()
	happened.kafkaGone.from = time.Now()
	w.kafka.Stop()
	w.until("Kafka is out of reach for all", func() bool {
		return w.all(func(g *status.Group) bool { return !g.Self.Kafka.Reachable && slices.ContainsFunc(g.Troubles, goesOn) })
	})
	happened.kafkaGone.to = time.Now()
	w.awaitKept()
	if *full {
		wait.Pass(t, time.Minute-time.Since(happened.kafkaGone.from))
	}
	happened.again.from = time.Now()
	w.kafka.Start()
	happened.again.to = time.Now()
	feeder.mu.Unlock()
	w.until("Kafka is reachable for all", func() bool {
		return w.all(func(g *status.Group) bool { return g.Self.Kafka.Reachable && !slices.ContainsFunc(g.Troubles, goesOn) })
	})
	happened.recovered = time.Now()
	w.awaitKept()
	happened.kept = time.Now()
}

// all says whether something is true of what each member says of itself.
func (w *world) all(ok func(*status.Group) bool) bool {
	for _, m := range w.member {
		if g := m.status(w.t); g == nil || g.Self.Kafka == nil || !ok(g) {
			return false
		}
	}
	return true
}

// stands says whether of the partitions that are owned this one stands still, and no other.
func (w *world) stands(stuck int32) bool {
	return w.all(func(g *status.Group) bool {
		return !slices.ContainsFunc(g.Partitions, func(p status.Partition) bool {
			return p.Topic == topic && p.Offsets != nil && stands(p) != (p.Partition == stuck)
		})
	})
}

// stands says whether a partition is described as one that stands still and falls behind.
func stands(p status.Partition) bool {
	return p.Offsets.Lag >= behind && p.Offsets.LagSeconds > 10 && p.Offsets.Stalled > 10
}

// goesOn says whether something goes wrong still, apart from the topic that nobody asks for and the handler that is stuck.
func goesOn(trouble status.Trouble) bool {
	return trouble.Until == nil && trouble.Kind != "unwanted-topic" && trouble.Kind != "stands"
}

// until waits until ok is true, and says how things are if that takes too long.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	wait.Until(w.t, patience, ok, func() string {
		var b strings.Builder
		b.WriteString(what)
		for name, m := range w.member {
			text, err := m.get(context.Background(), "/status?pretty")
			fmt.Fprintf(&b, "\n%s: %v %s\n%s", name, err, text, m.Log())
		}
		return b.String()
	})
}

// even says whether all members are ready and each owns so many partitions of topic.
func (w *world) even(share int) bool {
	for name, m := range w.member {
		g := m.status(w.t)
		if g == nil || !g.Self.Ready {
			return false
		}
		owned := 0
		for _, p := range g.Partitions {
			if p.Topic == topic && p.Owner == name {
				owned++
			}
		}
		if owned != share && name != "other" {
			return false
		}
	}
	return true
}

// worker waits until some member works on a partition.
func (w *world) worker(partition int32) (m *member, p *status.Partition) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s:%d is at work", topic, partition), func() bool { m, p = w.owner(partition); return m != nil })
	return m, p
}

// save keeps a member's log.
func (w *world) save(m *member) {
	if err := os.WriteFile(filepath.Join(w.dir, m.Name+".log"), []byte(m.Log()), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// String tells what has happened, in order.
func (h truth) String() string {
	at := func(when time.Time) string { return when.UTC().Format("15:04:05.000") }
	return fmt.Sprintf(`%s %s, the owner of orders:7, is killed
%s %s has claimed orders:7
%s the handler of orders:%d hangs at %s
%s Kafka is stopped
%s Kafka is started, and serves at %s
`, at(h.killed), h.victim, at(h.claimed.to), h.owner, at(h.hung), h.stuck, h.stuckAt, at(h.kafkaGone.from), at(h.again.from), at(h.again.to))
}

// finish keeps all that is left to keep: the members' logs, what stands in ZooKeeper, and the truth.
func (w *world) finish(happened truth) {
	t := w.t
	if err := os.WriteFile(filepath.Join(w.dir, "truth.txt"), []byte(happened.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, m := range w.member {
		m.end()
		w.save(m)
	}
	s, err := session.Start(t.Context(), []string{w.zk.Addr()}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	g, err := ownership.Inspect(t.Context(), s, group)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "zookeeper.status"), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// read returns a file that was kept.
func (w *world) read(file string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, file))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// last returns the last description that a member, or ZooKeeper, gave.
func (w *world) last(file string) (g status.Group) {
	w.t.Helper()
	text := w.read(file)
	if lines := strings.Split(strings.TrimSpace(text), "\n"); file != "zookeeper.status" {
		text = lines[len(lines)-1]
	}
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		w.t.Fatalf("%s: %v", file, err)
	}
	return g
}

func find(t *testing.T, g status.Group, partition int32) status.Partition {
	t.Helper()
	for _, p := range g.Partitions {
		if p.Topic == topic && p.Partition == partition {
			return p
		}
	}
	t.Fatalf("%s:%d is not described", topic, partition)
	return status.Partition{}
}

// line returns the first line of a log that has all of the words.
func (w *world) line(file string, words ...string) string {
	w.t.Helper()
	return w.lineAfter(file, time.Time{}, words...)
}

// lineAfter returns the first line of a log after a time that has all of the words.
func (w *world) lineAfter(file string, after time.Time, words ...string) string {
	w.t.Helper()
	for line := range strings.Lines(w.read(file)) {
		if !timeOf(w.t, line).Before(after) && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return line
		}
	}
	w.t.Errorf("%s has no line with %q", file, words)
	return ""
}

// within asserts that a time is that of something that has happened in a span.
func within(t *testing.T, what string, got time.Time, at span) {
	t.Helper()
	const blur = 100 * time.Millisecond // of clocks in logs
	if got.Before(at.from.Add(-blur)) || got.After(at.to.Add(blur)) {
		t.Errorf("%s is at %v; it happened between %v and %v", what, got, at.from, at.to)
	}
}

// checkMove asserts who owns orders:7, since when, who owned it before, and why it moved.
func (w *world) checkMove(happened truth) {
	t := w.t
	for _, file := range []string{happened.owner + ".status", "zookeeper.status"} {
		p := find(t, w.last(file), 7)
		if p.Owner != happened.owner || p.Previous != happened.victim || p.Since == nil || p.Reason == nil {
			t.Errorf("%s says of orders:7: %+v; want owner %s, before %s", file, p, happened.owner, happened.victim)
			continue
		}
		within(t, file+": the claim of orders:7", *p.Since, happened.claimed)
		if p.Reason.Code != status.MemberGone || !slices.Equal(p.Reason.Names, []string{happened.victim}) {
			t.Errorf("%s: orders:7 moved because of %v; want %s gone", file, p.Reason, happened.victim)
		}
	}
	claimed := w.line(happened.owner+".log", "msg=claimed", "partition=orders:7", "previous="+happened.victim)
	within(t, "the line of the claim", timeOf(t, claimed), happened.claimed)
	for name := range w.member {
		w.line(name+".log", "msg=rebalanced", "gone="+happened.victim)
	}
}

// timeOf returns the time of a line.
func timeOf(t *testing.T, line string) time.Time {
	t.Helper()
	m := regexp.MustCompile(`time=(\S+)`).FindStringSubmatch(line)
	if m == nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, m[1])
	if err != nil {
		t.Error(err)
	}
	return at
}

// checkStuck asserts that it shows which partition stands still and how far behind it is.
func (w *world) checkStuck(happened truth) {
	t := w.t
	g := w.last(happened.stuckAt + ".status")
	for _, p := range g.Partitions {
		if p.Owner == "" || p.Offsets == nil {
			continue
		}
		if stuck := p.Partition == happened.stuck; stands(p) != stuck {
			t.Errorf("%s:%d: %+v; is stuck: %v", p.Topic, p.Partition, p.Offsets, stuck)
		}
	}
	last := w.series(happened.stuckAt)
	lag := fmt.Sprintf(`kiel_consumer_lag_messages{group="billing",partition="%d",topic="orders"}`, happened.stuck)
	if n := last[len(last)-1].values[lag]; n < behind {
		t.Errorf("%s is %v", lag, n)
	}
	const stalled = `kiel_consumer_handler_stalled_seconds{group="billing",topic="orders"}`
	if n := last[len(last)-1].values[stalled]; n < 10 {
		t.Errorf("%s is %v", stalled, n)
	}
}

// checkOrphan asserts that it shows which topic nobody asks for.
func (w *world) checkOrphan() {
	t := w.t
	for name := range w.member {
		named := slices.ContainsFunc(w.last(name+".status").Disagreements, func(d status.Disagreement) bool {
			return d.Kind == status.UnwantedTopic && slices.Equal(d.Names, []string{orphan})
		})
		if !named {
			t.Errorf("%s does not say that nobody asks for %s", name, orphan)
		}
		last := w.series(name)
		if n := last[len(last)-1].values[`kiel_unwanted_partitions{group="billing"}`]; n != 2 {
			t.Errorf("%s: %v unwanted partitions, want 2", name, n)
		}
		w.line(name+".log", "level=WARN", orphan)
	}
}

// checkKafka asserts that it shows from when to when Kafka was away, and that the members noticed soon that it was back.
func (w *world) checkKafka(happened truth) {
	t := w.t
	if late := happened.recovered.Sub(happened.again.to); late > soon {
		t.Errorf("all members noticed that Kafka was back %v after it served", late)
	}
	back := span{happened.again.from, happened.recovered}
	for name := range w.member {
		from, to := w.kafkaByMetric(name, happened.kafkaGone.from)
		within(t, name+": the metric goes to 0", from, span{happened.kafkaGone.from, happened.again.from})
		within(t, name+": the metric comes back", to, span{back.from, happened.kept})

		g := w.last(name + ".status")
		troubles := slices.DeleteFunc(slices.Clone(g.Troubles), func(trouble status.Trouble) bool { return trouble.Since.Before(happened.kafkaGone.from) })
		if len(troubles) == 0 {
			t.Errorf("%s has no trouble to tell of: %+v", name, g.Troubles)
			continue
		}
		first, end := troubles[0].Since, time.Time{}
		for _, trouble := range troubles {
			if trouble.Since.Before(first) {
				first = trouble.Since
			}
			if trouble.Until != nil && trouble.Until.After(end) {
				end = *trouble.Until
			}
		}
		within(t, name+": the first trouble", first, happened.kafkaGone)
		within(t, name+": the end of all trouble", end, back)
		failed := w.lineAfter(name+".log", happened.kafkaGone.from, "msg=failed", "kind=", "component=consumer")
		within(t, name+": the first line", timeOf(t, failed), happened.kafkaGone)
		within(t, name+": the line of the end", timeOf(t, w.lineAfter(name+".log", happened.kafkaGone.from, "msg=recovered", "after=")), back)
		if lines := strings.Count(w.read(name+".log"), "msg=failed"); lines > 40 {
			t.Errorf("%s: %d lines say that something failed", name, lines)
		}
	}
}

// kafkaByMetric returns from when to when Kafka was out of reach by a member's metric, after a time.
func (w *world) kafkaByMetric(name string, after time.Time) (from, to time.Time) {
	w.t.Helper()
	for _, page := range w.series(name) {
		switch reachable := page.values[`kiel_consumer_kafka_reachable{group="billing"}`]; {
		case page.at.Before(after):
		case reachable == 0 && from.IsZero():
			from = page.at
		case reachable == 1 && !from.IsZero() && to.IsZero():
			to = page.at
		}
	}
	return from, to
}

// page is what a member's /metrics showed at a time.
type page struct {
	at     time.Time
	values map[string]float64
}

// series returns the pages of a member, in order.
func (w *world) series(name string) []page {
	w.t.Helper()
	var pages []page
	for line := range strings.Lines(w.read(name + ".metrics")) {
		line = strings.TrimSpace(line)
		if at, ok := strings.CutPrefix(line, "# at "); ok {
			stamp, err := time.Parse(time.RFC3339Nano, at)
			if err != nil {
				w.t.Fatal(err)
			}
			pages = append(pages, page{stamp, map[string]float64{}})
		}
		if i := strings.LastIndexByte(line, ' '); i > 0 && strings.HasPrefix(line, "kiel_") && len(pages) > 0 {
			if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
				pages[len(pages)-1].values[line[:i]] = v
			}
		}
	}
	if len(pages) == 0 {
		w.t.Fatalf("%s.metrics has no page", name)
	}
	return pages
}
