package consumer_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer"
)

// lines is a log that keeps its lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// take returns the lines since the last call.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Collect(strings.Lines(l.buf.String()))
	l.buf.Reset()
	return all
}

// logTo makes a member log its warnings and errors to l.
func logTo(l *lines, o *consumer.Options) {
	o.Logger = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// deleteTopic deletes a topic in Kafka.
func (r *rig) deleteTopic(name string) {
	r.t.Helper()
	if err := r.kafka.DeleteTopic(name); err != nil {
		r.t.Fatal(err)
	}
	r.prod.PurgeTopicsFromClient(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.sent {
		if p.Topic == name {
			delete(r.sent, p)
		}
	}
}

func (r *rig) createTopic(name string, partitions int32) {
	r.t.Helper()
	if err := r.kafka.CreateTopic(name, partitions, nil); err != nil {
		r.t.Fatal(err)
	}
	r.prod.PurgeTopicsFromClient(name)
}

// missingTopics returns what the gauge of topics that Kafka does not have shows, -1 when it is not there.
func missingTopics(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kiel_consumer_missing_topics" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// TestDeletedTopic: a topic that is deleted in Kafka while a group consumes it is reported once, however many partitions it has
// and however long it is missing. The group's other topics go on. When the topic is created again it is consumed again.
func TestDeletedTopic(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.createTopic("other", 2)
		var out lines
		reg := prometheus.NewRegistry()
		a := r.member("a", func(o *consumer.Options) {
			logTo(&out, o)
			o.Registerer = reg
		}).start(topic, "other")
		until(t, "all is open", func() bool { return len(a.owns()) == 6 })
		r.produce(10, 0, 1, 2, 3)
		until(t, "40 messages", func() bool { return total(a) == 40 })
		time.Sleep(5 * time.Second)
		out.take()

		r.deleteTopic(topic)
		time.Sleep(3 * time.Minute)
		if errs := a.errors(); len(errs) != 1 || !errors.Is(errs[0], consumer.ErrTopicMissing) {
			t.Errorf("%d errors: %v", len(errs), errs)
		}
		if said := out.take(); len(said) != 1 || !strings.Contains(said[0], "kind=missing-topic") {
			t.Errorf("%d lines in the log: %s", len(said), said)
		}
		if n := missingTopics(t, reg); n != 1 {
			t.Errorf("the gauge shows %v missing topics", n)
		}
		r.produceTo("other", 5, 0, 1)
		until(t, "the other topic goes on", func() bool { return total(a) == 50 })

		r.createTopic(topic, 4)
		r.produce(20, 0, 1, 2, 3)
		d := until(t, "the new topic is read", func() bool { return total(a) == 130 })
		t.Logf("the new topic was read after %v", d)
		if d > 15*time.Second {
			t.Errorf("the new topic was read after %v", d)
		}
		time.Sleep(time.Second)
		said := out.take()
		if len(said) != 1 || !strings.Contains(said[0], "cause=recreated policy=earliest partitions=4") {
			t.Errorf("%d lines in the log: %s", len(said), said)
		}
		if n := missingTopics(t, reg); n != 0 {
			t.Errorf("the gauge shows %v missing topics", n)
		}
		quit(a)
	})
}

// TestTopicIsBackWithFewerPartitions: a partition that is in the set and not in Kafka is reported once, until it is there.
func TestTopicIsBackWithFewerPartitions(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		var out lines
		a := r.member("a", func(o *consumer.Options) { logTo(&out, o) }).start()
		until(t, "all is open", func() bool { return len(a.owns()) == 4 })
		time.Sleep(5 * time.Second)
		r.deleteTopic(topic)
		time.Sleep(time.Minute)
		r.createTopic(topic, 2)
		out.take()
		r.produce(10, 0, 1)
		until(t, "the new topic is read", func() bool { return total(a) == 20 })
		time.Sleep(5 * time.Minute)
		unknown := map[int32]int{}
		for _, err := range a.errors() {
			if e, ok := errors.AsType[*sarama.ConsumerError](err); ok && errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				unknown[e.Partition]++
			}
		}
		if len(unknown) != 2 || unknown[2] != 1 || unknown[3] != 1 {
			t.Errorf("errors for each partition: %v", unknown)
		}
		ofPositions := func(line string) bool { return strings.Contains(line, "partitions start where a policy says") }
		if said := slices.DeleteFunc(out.take(), ofPositions); len(said) > 1 {
			t.Errorf("%d lines in the log: %s", len(said), said)
		}
		r.grow(4)
		r.produce(10, 2, 3)
		until(t, "the new partitions are read", func() bool { return total(a) == 40 })
		quit(a)
	})
}

// TestDeletedTopicIsSoonBack: a topic that is created again while the last commits of the deleted one are still tried is no other
// error, whenever that happens.
func TestDeletedTopicIsSoonBack(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second / 2, time.Second, 3 * time.Second, 5 * time.Second} {
		inRig(t, 4, func(t *testing.T, r *rig) {
			a := r.member("a", nil).start()
			until(t, "all is open", func() bool { return len(a.owns()) == 4 })
			time.Sleep(5 * time.Second)
			r.produce(10, 0, 1, 2, 3)
			until(t, "40 messages", func() bool { return total(a) == 40 })
			r.deleteTopic(topic)
			until(t, "all is closed", func() bool { return len(a.owns()) == 0 })
			time.Sleep(after)
			r.createTopic(topic, 4)
			r.produce(20, 0, 1, 2, 3)
			until(t, "the new topic is read", func() bool { return total(a) == 120 })
			time.Sleep(2 * time.Minute)
			for i, err := range a.errors() {
				if first := i == 0; first != errors.Is(err, consumer.ErrTopicMissing) || !first && !errors.Is(err, consumer.ErrRecreated) {
					t.Errorf("back %v after the end: error %d: %v", after, i, err)
				}
			}
			quit(a)
		})
	}
}
