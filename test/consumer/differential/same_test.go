package differential_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers"
)

// isolations are both levels.
var isolations = map[string]sarama.IsolationLevel{
	"uncommitted": sarama.ReadUncommitted,
	"committed":   sarama.ReadCommitted,
}

// All kinds of topics, from their first messages and from anywhere.
func TestSameMessages(t *testing.T) {
	for _, version := range versions() {
		t.Run("kafka "+version, func(t *testing.T) {
			r := newRig(t, servers.KafkaOptions{Version: version})
			topics := r.writeAll(t)
			for name, isolation := range isolations {
				small := newConfig(isolation)
				small.Consumer.Fetch.Default = 4 << 10
				small.ChannelBufferSize = 0
				t.Run(name, func(t *testing.T) {
					messages := r.same(t, reading{newConfig(isolation), starts(topics)})
					checkCounts(t, isolation, topics, messages)
					r.same(t, reading{small, starts(topics)})
					for i := range more(1, 20) {
						r.same(t, reading{newConfig(isolation), anywhere(fmt.Sprint(name, i), messages)})
					}
				})
			}
			t.Run("open transactions", r.testOpenTransactions)
			t.Run("records deleted", r.testRecordsDeleted)
			t.Run("log lost", r.testLogIsLost)
		})
	}
}

// writeAll writes all topics at once.
func (r *rig) writeAll(t *testing.T) []topic {
	t.Helper()
	all := writers()
	topics := make([]topic, len(all))
	t.Run("write", func(t *testing.T) {
		for i, w := range all {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				topics[i] = w.write(t, r, w.name)
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return topics
}

// starts returns the oldest positions of topics.
func starts(topics []topic) map[partition]int64 {
	out := map[partition]int64{}
	for _, topic := range topics {
		for p := range topic.from(oldest) {
			out[p] = oldest
		}
	}
	return out
}

// anywhere returns random positions, at and between messages, from the first to the last.
func anywhere(name string, messages map[partition][]*sarama.ConsumerMessage) map[partition]int64 {
	out := map[partition]int64{}
	for p, ms := range messages {
		first, last := ms[0].Offset, ms[len(ms)-1].Offset
		out[p] = first + random(fmt.Sprint(name, p)).Int64N(last-first+1)
	}
	return out
}

// same has all readers read, and returns what the reference read. A difference ends the test.
func (r *rig) same(t *testing.T, what reading) map[partition][]*sarama.ConsumerMessage {
	t.Helper()
	b := r.start(t, reference, what, nil)
	want := b.wait()
	if errs := b.errors(); len(errs) > 0 {
		t.Fatalf("%s: %v", b.name, errs)
	}
	for _, by := range readers {
		b := r.start(t, by, what, nil)
		got := b.wait()
		if errs := b.errors(); len(errs) > 0 {
			t.Errorf("%s reports %v", b.name, errs)
		}
		checkSame(t, by.name, what, want, got)
	}
	if t.Failed() {
		t.FailNow() // others would take their time to fail as well
	}
	return want
}

// checkSame reports what differs, by partition.
func checkSame(t *testing.T, name string, what reading, want, got map[partition][]*sarama.ConsumerMessage) {
	t.Helper()
	for p, start := range what.starts {
		if diffs := compare(want[p], got[p]); len(diffs) > 0 {
			t.Errorf("%s reads %s:%d from %d otherwise than PartitionConsumer:\n%s", name, p.topic, p.id, start, strings.Join(diffs, "\n"))
		}
	}
}

// checkCounts compares with what was written.
func checkCounts(t *testing.T, isolation sarama.IsolationLevel, topics []topic, messages map[partition][]*sarama.ConsumerMessage) {
	t.Helper()
	for _, topic := range topics {
		got, want := 0, topic.all
		if isolation == sarama.ReadCommitted {
			want = topic.committed
		}
		for p := range topic.from(oldest) {
			got += len(messages[p])
		}
		if got != want {
			t.Errorf("PartitionConsumer reads %d messages of %s, want %d", got, topic.name, want)
		}
	}
}
