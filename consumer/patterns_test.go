package consumer

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
	infos  map[string]topicInfo
	fail   error // of finding
	silent error // of all questions
	asked  [][]string
	take   time.Duration // until Kafka answers
}

func (f *fakeTopics) catalog(do *kafkaconn.Calls, named ...string) *catalog {
	c := newCatalog(named, func(topics []string) (map[string]topicInfo, error) {
		f.asked = append(f.asked, topics)
		if f.silent != nil {
			return nil, f.silent
		}
		out := map[string]topicInfo{}
		for _, topic := range topics {
			info, ok := f.infos[topic]
			if !ok {
				info.err = sarama.ErrUnknownTopicOrPartition
			}
			out[topic] = info
		}
		time.Sleep(f.take)
		return out, nil
	}, do)
	c.find = func() ([]string, error) { return f.names, errors.Join(f.fail, f.silent) }
	return c
}

// A topic that patterns alone ask for is known when Kafka describes it. A topic that Kafka can't describe yet, or has deleted
// meanwhile, causes no error.
func TestCatalogFindsTopics(t *testing.T) {
	there := topicInfo{partitions: []int32{0}}
	var do kafkaconn.Calls
	f := &fakeTopics{names: []string{"a", "young", "deleted", "named"}, infos: map[string]topicInfo{"a": there, "named": there, "young": {}}}
	c := f.catalog(&do, "named")
	look := func(want ...string) {
		t.Helper()
		if err := c.look(t.Context()); err != nil {
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
		if c.isNew(topic) != isNew {
			t.Errorf("%s is new: %t", topic, !isNew)
		}
	}
	delete(f.infos, "a")
	f.names = []string{"named", "young", "later"}
	look("later", "named", "young")
	if !c.isMissing("a") || c.isMissing("deleted") {
		t.Errorf("missing: %v", c.missingTopics())
	}
	if c.forget("young") || c.forget("named") || !c.forget("a") || c.forget("a") || len(c.missingTopics()) > 0 || c.count("a") != 0 {
		t.Errorf("missing: %v, a has %d partitions", c.missingTopics(), c.count("a"))
	}
}

// When Kafka does not answer which topics exist, the catalog asks for the known ones nevertheless. If Kafka does not answer at
// all, no topic counts as present, so that no topic is added to the set that was removed meanwhile.
func TestCatalogFindsNoTopics(t *testing.T) {
	var do kafkaconn.Calls
	f := &fakeTopics{names: []string{"a"}, infos: map[string]topicInfo{"a": {partitions: []int32{0}}}}
	c := f.catalog(&do)
	f.fail = sarama.ErrOutOfBrokers
	if err := c.look(t.Context()); !errors.Is(err, f.fail) {
		t.Error(err)
	}
	f.fail = nil
	if err := c.look(t.Context()); err != nil || len(c.present()) != 1 || c.isUnanswered() {
		t.Errorf("%v, present: %v, to be asked again soon: %v", err, c.present(), c.isUnanswered())
	}
	f.fail, f.infos["a"] = sarama.ErrUnknown, topicInfo{partitions: []int32{0, 1}}
	if err := c.look(t.Context()); !errors.Is(err, f.fail) || c.count("a") != 2 || !c.isUnanswered() {
		t.Errorf("%v, a has %d partitions, to be asked again soon: %v", err, c.count("a"), c.isUnanswered())
	}
	f.silent = sarama.ErrOutOfBrokers
	if err := c.look(t.Context()); !errors.Is(err, f.silent) || len(c.present()) > 0 {
		t.Errorf("%v, present: %v", err, c.present())
	}
}

// The catalog forgets topics that come and go.
func TestCatalogForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var do kafkaconn.Calls
		f := &fakeTopics{infos: map[string]topicInfo{}}
		c := f.catalog(&do, "t")
		for i := range 100 {
			topic := fmt.Sprintf("t-%d", i)
			f.names, f.infos = []string{topic}, map[string]topicInfo{topic: {partitions: []int32{0}}}
			_ = c.look(t.Context())
			time.Sleep(time.Minute)
			f.names, f.infos = nil, map[string]topicInfo{}
			_ = c.look(t.Context())
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
	there := topicInfo{partitions: []int32{0}}
	for what, answer := range map[string]map[string]topicInfo{"gone": {}, "there again": {"t": there}} {
		synctest.Test(t, func(t *testing.T) {
			var do kafkaconn.Calls
			f := &fakeTopics{names: []string{"t"}, infos: map[string]topicInfo{"t": there}, take: time.Second}
			c := f.catalog(&do)
			if err := c.look(t.Context()); err != nil {
				t.Error(err)
			}
			f.names, f.infos = nil, map[string]topicInfo{}
			if err := c.look(t.Context()); err != nil || !c.isMissing("t") {
				t.Errorf("%v, missing: %v", err, c.missingTopics())
			}
			f.infos = answer
			done := make(chan error)
			go func() { done <- c.refresh(t.Context(), 0) }()
			synctest.Wait()
			if !c.forget("t") {
				t.Error("not forgotten")
			}
			if err := <-done; err != nil || len(c.present()) > 0 || c.isMissing("t") {
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
	if err := c.look(t.Context()); err != nil || len(f.asked) > 0 || len(c.present()) > 0 {
		t.Errorf("%v, asked for %q", err, f.asked)
	}
}

// A topic of which this member has a partition is asked for at once, even if Kafka was asked just now, or is being asked. It is
// missing if Kafka does not have it, though it never had.
func TestCatalogOwnsTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var do kafkaconn.Calls
		f := &fakeTopics{infos: map[string]topicInfo{"a": {partitions: []int32{0, 1}}}, take: time.Second}
		c := f.catalog(&do, "a")
		var told []string
		c.notify = func(topic string, missing bool) {
			if missing {
				told = append(told, topic)
			}
		}
		if err := c.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.infos["b"] = f.infos["a"]
		c.own("b")
		done := make(chan error)
		go func() { done <- c.refresh(t.Context(), time.Hour) }()
		synctest.Wait()
		c.own("gone")
		c.own("b")
		if err := c.refresh(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if c.count("b") != 2 || !c.isMissing("gone") || !slices.Equal(told, []string{"gone"}) || len(f.asked) != 3 {
			t.Errorf("b has %d partitions, %q are missing, %d questions", c.count("b"), told, len(f.asked))
		}
		c.own("a")
		c.own("b")
		if err := c.refresh(t.Context(), time.Hour); err != nil || len(f.asked) != 3 {
			t.Errorf("%v, %d questions", err, len(f.asked))
		}
		do.Wait()
	})
}

// The finder names all topics, again and again, also when the first broker that it knows can't be reached.
func TestFinder(t *testing.T) {
	b := sarama.NewMockBroker(t, 1)
	defer b.Close()
	metadata := sarama.NewMockMetadataResponse(t).SetBroker(b.Addr(), b.BrokerID()).SetLeader("t", 0, 1).SetLeader("u", 0, 1)
	b.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": metadata})
	config := testConfig()
	config.Version, config.ApiVersionsRequest, config.Metadata.Retry.Max = sarama.V2_0_0_0, false, 0
	d := kafkaconn.NewDialer(t.Context(), config, 0)
	f := newFinder(t.Context(), &bootstrap{addresses: []string{"127.0.0.1:1", b.Addr()}}, *config, d)
	for _, want := range [][]string{{"t", "u"}, {"t", "u", "v"}} {
		got, err := f.topics()
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v", got, err)
		}
		metadata.SetLeader("v", 0, 1)
	}
	f.close()
	unreachable := newFinder(t.Context(), &bootstrap{addresses: []string{"127.0.0.1:1"}}, *config, d)
	if got, err := unreachable.topics(); !errors.Is(err, sarama.ErrOutOfBrokers) {
		t.Errorf("%q, %v", got, err)
	}
	unreachable.close()
	d.Abort()
	d.Wait()
}
