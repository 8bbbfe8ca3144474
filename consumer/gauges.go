package consumer

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
)

// gauges reads the state of a Group at each scrape. A partition has series while it is open, and afterwards
// while this member owns it. A topic has series from the first
// scrape on that finds one of its partitions open.
type gauges struct {
	group atomic.Pointer[Group] // nil until the Group is made

	lag, behind, uncommitted, paused, stalled, lastCommit, oldestMark, unreadable, reachable *prometheus.Desc

	mu     sync.Mutex
	topics map[string]bool // the topics that have series, by label
}

func newGauges(constant prometheus.Labels) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, constant)
	}
	return &gauges{
		topics: map[string]bool{},
		lag: desc("kiel_consumer_lag_messages",
			"Offsets between the next message that the handler gets and the end of what may be read, of each partition that this member owns; what stands "+
				"in the channel of sarama's API counts. The end is 5 s old at most: of a partition that is paused, or whose buffer is full, it is asked for at the "+
				"scrape, which waits for half a second at most. Of a partition that is owned and not open, as one whose handler fails, the next message is that at the "+
				"committed offset, and the end is 90 s old at most. While Kafka does not answer, it is the last one that is known.", "topic", "partition"),
		behind: desc("kiel_consumer_lag_seconds",
			"Age of the next message that the handler gets, in seconds, of each partition that this member owns; 0 when none waits. If the partition is not "+
				"open, and its handler has not had that message, it is the time since the message was seen to wait.", "topic", "partition"),
		uncommitted: desc("kiel_consumer_uncommitted_messages",
			"Offsets between the committed one and the next message that the handler gets, of each partition that this member owns: what was handed out and "+
				"comes again to the next owner; 0 while it is not open. It grows without end where a program marks nothing; 0 if it keeps offsets itself, by Fence or from Setup.", "topic", "partition"),
		paused: desc("kiel_consumer_paused_partitions",
			"Open partitions that the program has paused.", "topic"),
		stalled: desc("kiel_consumer_handler_stalled_seconds",
			"Longest time, in seconds, for which a handler of an open partition has taken no further message and marked none, though it has one "+
				"in hand or one waits for it. With sarama's interfaces, and with Done, it has one in hand when it has marked others, and not the "+
				"last. The time counts from the first look that found it so, which the member takes each 10 s.", "topic"),
		lastCommit: desc("kiel_consumer_last_commit_age_seconds",
			"The smaller of the time since an offset was stored last and the age of the oldest mark that waits, in seconds; 0 while nothing waits."),
		oldestMark: desc("kiel_consumer_oldest_mark_age_seconds",
			"Age of the oldest mark that is not committed, in seconds; 0 while all marks are committed."),
		unreadable: desc("kiel_consumer_oldest_unreadable_partition_seconds",
			"Longest time, in seconds, for which a partition that this member owns was not open, or could not be fetched; 0 while all are read. "+
				"The move of a leader makes it seconds. Partitions that the program has paused don't count."),
		reachable: desc("kiel_consumer_kafka_reachable",
			"1 while Kafka's brokers answer, or nothing was asked yet; 0 when a connection has failed and no broker has answered for 10 s since. "+
				"A member without open partitions asks once a minute, and every 5 s while Kafka does not answer."),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.lag, g.behind, g.uncommitted, g.paused, g.stalled, g.lastCommit, g.oldestMark, g.unreadable, g.reachable} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	group := g.group.Load()
	if group == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := time.Now()
	reachable := 0.0
	if ok, _ := group.reach.State(); ok {
		reachable = 1
	}
	gauge(g.reachable, reachable)
	lastCommit, oldest := group.commitAges(now)
	gauge(g.lastCommit, lastCommit.Seconds())
	gauge(g.oldestMark, oldest.Seconds())
	gauge(g.unreadable, group.unreadable(now).Seconds())

	paused, stalled := map[string]int{}, map[string]time.Duration{}
	open := group.open()
	freshen(open)
	for at, p := range labelled(open) {
		lag, behind := p.lag()
		gauge(g.lag, float64(lag), at.topic, at.partition)
		gauge(g.behind, behind.Seconds(), at.topic, at.partition)
		gauge(g.uncommitted, float64(p.uncommitted()), at.topic, at.partition)
		if p.pauses.has(p.id) {
			paused[at.topic]++
		}
		stalled[at.topic] = max(stalled[at.topic], p.stalled(now))
	}
	g.collectShut(group, gauge, open, now)
	for _, topic := range g.seen(maps.Keys(stalled)) {
		gauge(g.paused, float64(paused[topic]), topic)
		gauge(g.stalled, stalled[topic].Seconds(), topic)
	}
}

// collectShut collects the lag of the partitions that are owned and not open: they go on at the committed offset.
func (g *gauges) collectShut(group *Group, gauge func(d *prometheus.Desc, v float64, labels ...string), open map[kiel.Partition]*Partition, now time.Time) {
	m := group.member()
	if m == nil {
		return
	}
	shut := map[kiel.Partition]waiting{}
	m.shut.each(now, func(p kiel.Partition, messages int64, behind time.Duration) {
		if open[p] == nil {
			shut[p] = waiting{messages, behind}
		}
	})
	taken := labelled(open)
	for at, w := range labelled(shut) {
		if taken[at] != nil {
			continue
		}
		gauge(g.lag, float64(w.messages), at.topic, at.partition)
		gauge(g.behind, w.behind.Seconds(), at.topic, at.partition)
		gauge(g.uncommitted, 0, at.topic, at.partition)
	}
}

// waiting is the lag of a partition.
type waiting struct {
	messages int64
	behind   time.Duration
}

// freshen has Kafka asked for the ends of the partitions that are not fetched, by one request to each of their leaders, and waits
// for endWait at most.
func freshen(open map[kiel.Partition]*Partition) {
	for _, p := range open {
		p.stream.Freshen(endWait) // the first one asks for all, and the others don't wait longer
	}
}

// seen returns the topics that had an open partition at a scrape, these included.
func (g *gauges) seen(now func(yield func(string) bool)) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic := range now {
		g.topics[topic] = true
	}
	return slices.Collect(maps.Keys(g.topics))
}

// forget deletes the series of a topic that was removed.
func (g *gauges) forget(label string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.topics, label)
}

// labels name a partition.
type labels struct{ topic, partition string }

// labelled returns partitions by their labels. Two partitions may have the same labels if their topics are no UTF-8; it returns
// one of them.
func labelled[P any](all map[kiel.Partition]P) map[labels]P {
	out := make(map[labels]P, len(all))
	for id, p := range all {
		out[labels{labelOf(id.Topic), strconv.Itoa(int(id.ID))}] = p
	}
	return out
}

// labelOf returns the value of the label topic. Prometheus accepts UTF-8 alone.
func labelOf(topic string) string { return strings.ToValidUTF8(topic, "?") }

// commitAges returns for how long no offset was stored although a mark waited to be stored, and the age of the oldest mark that
// is not committed.
func (g *Group) commitAges(now time.Time) (lastCommit, oldest time.Duration) {
	m := g.member()
	if m == nil {
		return 0, 0
	}
	b := m.committer.Backlog()
	if b.Oldest.IsZero() {
		return 0, 0
	}
	oldest = max(now.Sub(b.Oldest), 0)
	return min(oldest, max(now.Sub(b.StoredAt), 0)), oldest
}

// unreadable returns the longest time for which a partition of this member was not open, or could not be fetched.
func (g *Group) unreadable(now time.Time) time.Duration {
	m := g.member()
	if m == nil {
		return 0
	}
	var longest time.Duration
	since := func(at time.Time) {
		if !at.IsZero() {
			longest = max(longest, now.Sub(at))
		}
	}
	for _, o := range m.openings.list() {
		since(o.notOpenSince())
	}
	for _, p := range g.open() {
		since(p.stream.FailingSince())
	}
	return longest
}
