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
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
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

func (f *fakeTopics) catalog(t *testing.T, named ...string) *Catalog {
	t.Helper()
	c := newCatalog(t, named, func(topics []string) (map[string]Info, error) {
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
	})
	c.Find = func() ([]string, error) { return f.names, errors.Join(f.fail, f.silent) }
	return c
}

// A topic that patterns alone ask for is known when Kafka describes it. A topic that Kafka can't describe yet, or has deleted
// meanwhile, causes no error.
func TestCatalogFindsTopics(t *testing.T) {
	there := Info{Partitions: []int32{0}}
	f := &fakeTopics{names: []string{"a", "young", "deleted", "named"}, infos: map[string]Info{"a": there, "named": there, "young": {}}}
	c := f.catalog(t, "named")
	look := func(want ...string) {
		t.Helper()
		noerr.Want(t, c.Look(t.Context()))
		present := c.present()
		assert.Equal(t, len(present), len(want), "present: %v", present)
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
		assert.Equal(t, c.IsNew(topic), isNew, "%s is new", topic)
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
	f := &fakeTopics{names: []string{"a"}, infos: map[string]Info{"a": {Partitions: []int32{0}}}}
	c := f.catalog(t)
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
		f := &fakeTopics{infos: map[string]Info{}}
		c := f.catalog(t, "t")
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
	})
}

// A topic that was forgotten while Kafka was asked is not in the answer.
func TestCatalogForgetsWhileItAsks(t *testing.T) {
	there := Info{Partitions: []int32{0}}
	for what, answer := range map[string]map[string]Info{"gone": {}, "there again": {"t": there}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeTopics{names: []string{"t"}, infos: map[string]Info{"t": there}, take: time.Second}
			c := f.catalog(t)
			noerr.Want(t, c.Look(t.Context()))
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
		})
	}
}

// Without a topic Kafka is not asked, because Kafka takes an empty list for all topics.
func TestCatalogOfNoTopic(t *testing.T) {
	f := &fakeTopics{}
	c := f.catalog(t)
	if err := c.Look(t.Context()); err != nil || len(f.asked) > 0 || len(c.present()) > 0 {
		t.Errorf("%v, asked for %q", err, f.asked)
	}
}

// A topic of which this member has a partition is asked for at once, even if Kafka was asked just now, or is being asked. It is
// missing if Kafka does not have it, though it never had.
func TestCatalogOwnsTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopics{infos: map[string]Info{"a": {Partitions: []int32{0, 1}}}, take: time.Second}
		c := f.catalog(t, "a")
		var told []string
		c.notify = func(topic string, missing bool) {
			if missing {
				told = append(told, topic)
			}
		}
		noerr.Must(t, c.Look(t.Context()))
		f.infos["b"] = f.infos["a"]
		c.Own("b")
		done := make(chan error)
		go func() { done <- c.Refresh(t.Context(), time.Hour) }()
		synctest.Wait()
		c.Own("gone")
		c.Own("b")
		noerr.Want(t, c.Refresh(t.Context(), time.Hour))
		noerr.Want(t, <-done)
		if c.Count("b") != 2 || !c.IsMissing("gone") || !slices.Equal(told, []string{"gone"}) || len(f.asked) != 3 {
			t.Errorf("b has %d partitions, %q are missing, %d questions", c.Count("b"), told, len(f.asked))
		}
		c.Own("a")
		c.Own("b")
		if err := c.Refresh(t.Context(), time.Hour); err != nil || len(f.asked) != 3 {
			t.Errorf("%v, %d questions", err, len(f.asked))
		}
	})
}

// The finder names all topics, again and again, also when the first broker that it knows can't be reached.
func TestFinder(t *testing.T) {
	b := sarama.NewMockBroker(t, 1)
	defer b.Close()
	metadata := sarama.NewMockMetadataResponse(t).SetBroker(b.Addr(), b.BrokerID()).SetLeader("t", 0, 1).SetLeader("u", 0, 1)
	b.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": metadata})
	config := conntest.Config()
	config.Version, config.ApiVersionsRequest, config.Metadata.Retry.Max = sarama.V2_0_0_0, false, 0
	d := kafkaconn.NewDialer(t.Context(), config, 0)
	finder := func(brokers ...string) *Finder {
		connect := func(c *sarama.Config) (sarama.Client, error) { return sarama.NewClient(brokers, c) }
		return NewFinder(connect, kafkaconn.ControlConfig(*config, d))
	}
	f := finder("127.0.0.1:1", b.Addr())
	for _, want := range [][]string{{"t", "u"}, {"t", "u", "v"}} {
		got, err := f.Topics()
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v", got, err)
		}
		metadata.SetLeader("v", 0, 1)
	}
	f.Close()
	unreachable := finder("127.0.0.1:1")
	if got, err := unreachable.Topics(); !errors.Is(err, sarama.ErrOutOfBrokers) {
		t.Errorf("%q, %v", got, err)
	}
	unreachable.Close()
	d.Abort()
	d.Wait()
}
