package topics

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// fakeTopics is what Kafka says to a catalog whose patterns find all topics.
type fakeTopics struct {
	names  []string // what is found
	infos  map[string]Info
	fail   error // of finding
	silent error // of all questions
	asked  [][]string
	take   time.Duration // until Kafka answers
}

func (f *fakeTopics) catalog(do *kafkaconn.Calls, named ...string) *Catalog {
	c := newCatalog(named, func(topics []string) (map[string]Info, error) {
		f.asked = append(f.asked, topics)
		if f.silent != nil {
			return nil, f.silent
		}
		out := map[string]Info{}
		for _, topic := range topics {
			info, ok := f.infos[topic]
			if !ok {
				info.Err = sarama.ErrUnknownTopicOrPartition
			}
			out[topic] = info
		}
		time.Sleep(f.take)
		return out, nil
	}, do)
	c.Find = func() ([]string, error) { return f.names, errors.Join(f.fail, f.silent) }
	return c
}

// A topic that patterns alone ask for is known when Kafka describes it. A topic that Kafka can't describe yet, or has deleted
// meanwhile, causes no error.
func TestCatalogFindsTopics(t *testing.T) {
	there := Info{Partitions: []int32{0}}
	var do kafkaconn.Calls
	f := &fakeTopics{names: []string{"a", "young", "deleted", "named"}, infos: map[string]Info{"a": there, "named": there, "young": {}}}
	c := f.catalog(&do, "named")
	look := func(want ...string) {
		t.Helper()
		if err := c.Look(t.Context()); err != nil {
			t.Error(err)
		}
		present := c.present()
		if len(present) != len(want) {
			t.Errorf("present: %v, want %q", present, want)
		}
		for _, topic := range want {
			if present[topic] == nil {
				t.Errorf("present: %v, want %q", present, want)
			}
		}
	}
	look("a", "named")
	f.names = append(f.names, "later")
	f.infos["young"], f.infos["later"] = there, there
	look("a", "later", "named", "young")
	for topic, isNew := range map[string]bool{"a": false, "named": false, "young": false, "later": true} {
		if c.IsNew(topic) != isNew {
			t.Errorf("%s is new: %t", topic, !isNew)
		}
	}
	delete(f.infos, "a")
	f.names = []string{"named", "young", "later"}
	look("later", "named", "young")
	if !c.IsMissing("a") || c.IsMissing("deleted") {
		t.Errorf("missing: %v", c.missingTopics())
	}
	if c.forget("young") || c.forget("named") || !c.forget("a") || c.forget("a") || len(c.missingTopics()) > 0 || c.Count("a") != 0 {
		t.Errorf("missing: %v, a has %d partitions", c.missingTopics(), c.Count("a"))
	}
}

// When Kafka does not answer which topics exist, the catalog asks for the known ones nevertheless. If Kafka does not answer at
// all, no topic counts as present, so that no topic is added to the set that was removed meanwhile.
func TestCatalogFindsNoTopics(t *testing.T) {
	var do kafkaconn.Calls
	f := &fakeTopics{names: []string{"a"}, infos: map[string]Info{"a": {Partitions: []int32{0}}}}
	c := f.catalog(&do)
	f.fail = sarama.ErrOutOfBrokers
	if err := c.Look(t.Context()); !errors.Is(err, f.fail) {
		t.Error(err)
	}
	f.fail = nil
	if err := c.Look(t.Context()); err != nil || len(c.present()) != 1 || c.isUnanswered() {
		t.Errorf("%v, present: %v, to be asked again soon: %v", err, c.present(), c.isUnanswered())
	}
	f.fail, f.infos["a"] = sarama.ErrUnknown, Info{Partitions: []int32{0, 1}}
	if err := c.Look(t.Context()); !errors.Is(err, f.fail) || c.Count("a") != 2 || !c.isUnanswered() {
		t.Errorf("%v, a has %d partitions, to be asked again soon: %v", err, c.Count("a"), c.isUnanswered())
	}
	f.silent = sarama.ErrOutOfBrokers
	if err := c.Look(t.Context()); !errors.Is(err, f.silent) || len(c.present()) > 0 {
		t.Errorf("%v, present: %v", err, c.present())
	}
}

// The catalog forgets topics that come and go.
func TestCatalogForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var do kafkaconn.Calls
		f := &fakeTopics{infos: map[string]Info{}}
		c := f.catalog(&do, "t")
		for i := range 100 {
			topic := fmt.Sprintf("t-%d", i)
			f.names, f.infos = []string{topic}, map[string]Info{topic: {Partitions: []int32{0}}}
			_ = c.Look(t.Context())
			time.Sleep(time.Minute)
			f.names, f.infos = nil, map[string]Info{}
			_ = c.Look(t.Context())
			if !c.forget(topic) || !c.wasMissing(topic) {
				t.Fatalf("%s is not forgotten, or was not missing", topic)
			}
			time.Sleep(time.Minute)
		}
		if len(c.infos)+len(c.missing)+len(c.found) > 0 || len(c.missed) > 1 {
			t.Errorf("infos %v, missing %v, found %v, missed %v", c.infos, c.missing, c.found, c.missed)
		}
		do.Wait()
	})
}

// A topic that was forgotten while Kafka was asked is not in the answer.
func TestCatalogForgetsWhileItAsks(t *testing.T) {
	there := Info{Partitions: []int32{0}}
	for what, answer := range map[string]map[string]Info{"gone": {}, "there again": {"t": there}} {
		synctest.Test(t, func(t *testing.T) {
			var do kafkaconn.Calls
			f := &fakeTopics{names: []string{"t"}, infos: map[string]Info{"t": there}, take: time.Second}
			c := f.catalog(&do)
			if err := c.Look(t.Context()); err != nil {
				t.Error(err)
			}
			f.names, f.infos = nil, map[string]Info{}
			if err := c.Look(t.Context()); err != nil || !c.IsMissing("t") {
				t.Errorf("%v, missing: %v", err, c.missingTopics())
			}
			f.infos = answer
			done := make(chan error)
			go func() { done <- c.Refresh(t.Context(), 0) }()
			synctest.Wait()
			if !c.forget("t") {
				t.Error("not forgotten")
			}
			if err := <-done; err != nil || len(c.present()) > 0 || c.IsMissing("t") {
				t.Errorf("%s: %v, present: %v, missing: %v", what, err, c.present(), c.missingTopics())
			}
			do.Wait()
		})
	}
}

// Without a topic Kafka is not asked, because Kafka takes an empty list for all topics.
func TestCatalogOfNoTopic(t *testing.T) {
	var do kafkaconn.Calls
	f := &fakeTopics{}
	c := f.catalog(&do)
	if err := c.Look(t.Context()); err != nil || len(f.asked) > 0 || len(c.present()) > 0 {
		t.Errorf("%v, asked for %q", err, f.asked)
	}
}

// A topic of which this member has a partition is asked for at once, even if Kafka was asked just now, or is being asked. It is
// missing if Kafka does not have it, though it never had.
func TestCatalogOwnsTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var do kafkaconn.Calls
		f := &fakeTopics{infos: map[string]Info{"a": {Partitions: []int32{0, 1}}}, take: time.Second}
		c := f.catalog(&do, "a")
		var told []string
		c.notify = func(topic string, missing bool) {
			if missing {
				told = append(told, topic)
			}
		}
		if err := c.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.infos["b"] = f.infos["a"]
		c.Own("b")
		done := make(chan error)
		go func() { done <- c.Refresh(t.Context(), time.Hour) }()
		synctest.Wait()
		c.Own("gone")
		c.Own("b")
		if err := c.Refresh(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if c.Count("b") != 2 || !c.IsMissing("gone") || !slices.Equal(told, []string{"gone"}) || len(f.asked) != 3 {
			t.Errorf("b has %d partitions, %q are missing, %d questions", c.Count("b"), told, len(f.asked))
		}
		c.Own("a")
		c.Own("b")
		if err := c.Refresh(t.Context(), time.Hour); err != nil || len(f.asked) != 3 {
			t.Errorf("%v, %d questions", err, len(f.asked))
		}
		do.Wait()
	})
}
