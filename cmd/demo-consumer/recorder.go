package main

import (
	"maps"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/eventlog"
)

// recorder keeps what the demo's members do: their event logs for the verdict at the end, and who owns what right now for the
// tables in between.
type recorder struct {
	mu      sync.Mutex
	logs    map[string][]eventlog.Event
	owners  map[eventlog.Partition]string
	seen    map[eventlog.Partition]map[int64]bool
	next    map[eventlog.Partition]int64
	total   int
	changed chan struct{} // closed and replaced whenever something was recorded
}

func newRecorder() *recorder {
	return &recorder{
		logs:    map[string][]eventlog.Event{},
		owners:  map[eventlog.Partition]string{},
		seen:    map[eventlog.Partition]map[int64]bool{},
		next:    map[eventlog.Partition]int64{},
		changed: make(chan struct{}),
	}
}

// observer returns the function that records one member; nil if nothing is recorded.
func (r *recorder) observer(member string) func(consumer.Event) {
	if r == nil {
		return nil
	}
	return func(e consumer.Event) {
		line := logEvent(member, e)
		r.mu.Lock()
		defer r.mu.Unlock()
		line.T = monotonic()
		r.logs[member] = append(r.logs[member], line)
		var p eventlog.Partition
		if line.Partition != nil {
			p = eventlog.Partition{Topic: line.Topic, ID: *line.Partition}
		}
		switch line.Event {
		case eventlog.Claimed:
			r.owners[p] = member
		case eventlog.Releasing, eventlog.Lost, eventlog.Untrusted, eventlog.Left:
			maps.DeleteFunc(r.owners, func(q eventlog.Partition, owner string) bool {
				return owner == member && (line.Partition == nil || p == q)
			})
		}
		r.notify()
	}
}

// notify wakes those who wait for a change. The caller holds mu.
func (r *recorder) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// done returns the function that records what one member's handler has done.
func (r *recorder) done(member string) func(*sarama.ConsumerMessage) {
	if r == nil {
		return func(*sarama.ConsumerMessage) {}
	}
	return func(m *sarama.ConsumerMessage) {
		line := logDone(member, m)
		r.mu.Lock()
		defer r.mu.Unlock()
		line.T = monotonic()
		r.logs[member] = append(r.logs[member], line)
		p := eventlog.Partition{Topic: m.Topic, ID: m.Partition}
		if r.seen[p] == nil {
			r.seen[p] = map[int64]bool{}
		}
		r.total++
		r.seen[p][m.Offset] = true
		r.next[p] = max(r.next[p], m.Offset+1)
		r.notify()
	}
}

// state is a copy of the present state.
type state struct {
	owners               map[eventlog.Partition]string
	messages, duplicates int // different ones, and how often one came again
	lost                 int // messages below a partition's position that nobody saw
	changed              <-chan struct{}
}

func (r *recorder) state() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := state{owners: maps.Clone(r.owners), changed: r.changed}
	for p, seen := range r.seen {
		s.messages += len(seen)
		s.lost += int(r.next[p]) - len(seen)
	}
	s.duplicates = r.total - s.messages
	return s
}

// check is the verdict over everything that was recorded.
func (r *recorder) check(ends map[eventlog.Partition]int64) *eventlog.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	var logs []eventlog.Log
	for _, member := range slices.Sorted(maps.Keys(r.logs)) {
		logs = append(logs, eventlog.Log{Name: member, Events: r.logs[member]})
	}
	return eventlog.Check(logs, eventlog.Expect{End: ends})
}
