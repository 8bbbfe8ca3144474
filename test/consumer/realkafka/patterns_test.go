package realkafka_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
)

// Patterns find the topics of a real Kafka, one that is created later too, and none of Kafka's own. One that was deleted is
// reported once, and leaves the set for good when it is removed.
func TestPatterns(t *testing.T) {
	t.Parallel()
	longer(t, testPatterns)
}

func testPatterns(t *testing.T, version string) {
	t.Helper()
	r := sharedRig(t, version, 2)
	newTopic := r.topic + "-new"
	r.kafka.CreateTopic(r.topic+"-left-out", 1)
	r.config = memberConfig()
	r.config.Metadata.RefreshFrequency = time.Second
	r.topics = []string{"^" + r.topic + ".*", "^__.*", "!^" + r.topic + "-left-.*"}
	r.produce(10, 0, 1)
	a, b := r.member("a"), r.member("b")
	until(t, "20 messages", func() bool { return a.count.Load()+b.count.Load() == 20 })
	until(t, "each has a partition", func() bool { return a.open.Load() == 1 && b.open.Load() == 1 })

	r.kafka.CreateTopic(newTopic, 4)
	began := time.Now()
	until(t, "a topic that is created later is open", func() bool { return a.open.Load() == 3 && b.open.Load() == 3 })
	t.Attr("found", time.Since(began).String())
	if err := r.admin().DeleteTopic(newTopic); err != nil {
		t.Fatal(err)
	}
	missing := func(m *member) bool {
		return slices.ContainsFunc(m.errors(), func(err error) bool { return errors.Is(err, consumer.ErrTopicMissing) })
	}
	until(t, "it is missing", func() bool { return missing(a) && missing(b) && a.open.Load()+b.open.Load() == 2 })
	if err := a.group.RemoveTopic(t.Context(), newTopic); err != nil {
		t.Error(err)
	}
	<-time.After(3 * time.Second) // they look again meanwhile
	if err := a.group.RemoveTopic(t.Context(), newTopic); !errors.Is(err, consumer.ErrTopicNotInSet) {
		t.Errorf("the topic came back: %v", err)
	}
	a.leave()
	b.leave()
	for _, m := range []*member{a, b} {
		if errs := m.errors(); len(errs) != 1 {
			t.Errorf("%d errors: %v", len(errs), errs)
		}
	}
	topics, err := r.admin().ListTopics()
	if _, ok := topics["__consumer_offsets"]; err != nil || !ok {
		t.Errorf("Kafka has no topic of its own: %v", err)
	}
}
