package topics

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// newCatalog returns a catalog of topics, of which nobody is notified. The test's end waits for its questions.
func newCatalog(t *testing.T, names []string, load func([]string) (map[string]Info, error)) *Catalog {
	t.Helper()
	do := &kafkaconn.Calls{}
	t.Cleanup(do.Wait)
	c := New(Options{Names: names, Load: load, Calls: do})
	c.notify, c.grew = func(string, bool) {}, func(string, int, int) {}
	return c
}

// refreshAll has 20 goroutines ask at once.
func refreshAll(t *testing.T, c *Catalog, youngerThan time.Duration) {
	t.Helper()
	done := make(chan error)
	for range 20 {
		go func() { done <- c.Refresh(t.Context(), youngerThan) }()
	}
	for range 20 {
		noerr.Want(t, <-done)
	}
}

func TestCatalogAsksOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		c := newCatalog(t, []string{"t"}, func([]string) (map[string]Info, error) {
			asked.Add(1)
			time.Sleep(time.Second)
			return map[string]Info{"t": {ID: sarama.Uuid{1}, Partitions: []int32{0, 1}}}, nil
		})
		refreshAll(t, c, time.Second)
		assert.Equal(t, asked.Load(), 1, "questions")
		if c.ID("t") != (sarama.Uuid{1}) || !reflect.DeepEqual(c.Partitions(), map[string][]int32{"t": {0, 1}}) {
			t.Errorf("%v %v", c.ID("t"), c.Partitions())
		}
		if err := c.Refresh(t.Context(), time.Minute); err != nil || asked.Load() != 1 {
			t.Errorf("a young answer was not enough: %v", err)
		}
		time.Sleep(time.Second)
		refreshAll(t, c, 0)
		assert.Equal(t, asked.Load(), 2, "questions in all")
	})
}

func TestCatalogEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		c := newCatalog(t, []string{"t"}, func([]string) (map[string]Info, error) {
			<-answer
			return nil, errors.New("too late")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- c.Refresh(ctx, 0) }()
		}
		for range 2 {
			assert.Error(t, <-done, context.DeadlineExceeded, "refresh")
		}
		close(answer)
	})
}

func TestCatalogKeepsWhatItKnows(t *testing.T) {
	answers := []map[string]Info{
		{"a": {ID: sarama.Uuid{1}, Partitions: []int32{0}}, "b": {ID: sarama.Uuid{2}, Partitions: []int32{0}}},
		{"a": {ID: sarama.Uuid{1}, Partitions: []int32{0, 1}}, "b": {Err: sarama.ErrUnknownTopicOrPartition}},
		{"a": {ID: sarama.Uuid{1}, Partitions: []int32{0, 1}}},
	}
	c := newCatalog(t, []string{"a", "b"}, func([]string) (map[string]Info, error) {
		if len(answers) == 0 {
			return nil, sarama.ErrOutOfBrokers
		}
		a := answers[0]
		answers = answers[1:]
		return a, nil
	})
	for i, want := range []error{nil, nil, sarama.ErrIncompleteResponse, sarama.ErrOutOfBrokers} {
		assert.Error(t, c.Refresh(t.Context(), 0), want, "%d", i)
		if c.ID("b") != (sarama.Uuid{2}) {
			t.Errorf("%d: b was forgotten", i)
		}
		present := [...]map[string][]int32{{"a": {0}, "b": {0}}, {"a": {0, 1}}, {"a": {0, 1}}, nil}[i]
		if got := c.present(); !reflect.DeepEqual(got, present) {
			t.Errorf("%d: present %v", i, got)
		}
	}
	if got := c.Partitions(); !reflect.DeepEqual(got, map[string][]int32{"a": {0, 1}, "b": {0}}) {
		t.Errorf("partitions %v", got)
	}
}

// An answer in which a topic has no partitions is incomplete; the topic's older description stays.
func TestCatalogTakesNoTopicWithoutPartitions(t *testing.T) {
	answer := Info{ID: sarama.Uuid{1}}
	c := newCatalog(t, []string{"t"}, func([]string) (map[string]Info, error) { return map[string]Info{"t": answer}, nil })
	if err := c.Refresh(t.Context(), 0); !errors.Is(err, sarama.ErrIncompleteResponse) {
		t.Errorf("%v", err)
	}
	answer.Partitions = []int32{0}
	noerr.Want(t, c.Refresh(t.Context(), 0))
	answer.Partitions = nil
	if err := c.Refresh(t.Context(), 0); !errors.Is(err, sarama.ErrIncompleteResponse) || len(c.Partitions()["t"]) != 1 {
		t.Errorf("%v, %v", err, c.Partitions())
	}
}

// A topic is missing when Kafka had it before and does not have it now. notify is called once for that, and once when the topic
// is back.
func TestCatalogTellsOfMissingTopics(t *testing.T) {
	var answer Info
	var failed error
	c := newCatalog(t, []string{"t"}, func([]string) (map[string]Info, error) { return map[string]Info{"t": answer}, failed })
	var told []bool
	c.notify = func(_ string, missing bool) { told = append(told, missing) }
	there := Info{ID: sarama.Uuid{1}, Partitions: []int32{0}}
	gone := Info{Err: sarama.ErrUnknownTopicOrPartition}
	for i, step := range []struct {
		answer  Info
		failed  error
		want    error
		missing bool
		told    []bool
	}{
		{answer: gone, want: sarama.ErrUnknownTopicOrPartition}, // it was never there
		{answer: there},
		{answer: Info{Err: sarama.ErrTopicAuthorizationFailed}, want: sarama.ErrTopicAuthorizationFailed},
		{answer: gone, missing: true, told: []bool{true}},
		{answer: gone, missing: true, told: []bool{true}},
		{answer: there, failed: sarama.ErrOutOfBrokers, want: sarama.ErrOutOfBrokers, missing: true, told: []bool{true}},
		{answer: Info{}, want: sarama.ErrIncompleteResponse, missing: true, told: []bool{true}},
		{answer: there, told: []bool{true, false}},
		{answer: there, told: []bool{true, false}},
		{answer: gone, missing: true, told: []bool{true, false, true}},
	} {
		answer, failed = step.answer, step.failed
		assert.Error(t, c.Refresh(t.Context(), 0), step.want, "%d", i)
		if c.IsMissing("t") != step.missing || !slices.Equal(told, step.told) {
			t.Errorf("%d: missing %t, told %v", i, c.IsMissing("t"), told)
		}
	}
}

func TestMain(m *testing.M) { conntest.Main(m) }
