package realkafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
)

// A topic that is deleted while it is consumed, with marks under way, is one error, and is consumed again when it is created
// again.
func TestDeletedTopic(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := sharedRig(t, version, n)
		r.produce(100, ids(n)...)
		a := r.member("a")
		until(t, "all messages", func() bool { return a.count.Load() == 100*n })
		for _, p := range ids(n) { // commits of a deleted topic would be refused, and reported
			until(t, "the marks are committed", func() bool { return r.committed(p) == 100 })
		}
		began := time.Now()
		if err := r.admin().DeleteTopic(r.topic); err != nil {
			t.Fatal(err)
		}
		until(t, "the error", func() bool { return len(a.errors()) > 0 })
		t.Attr("reported", time.Since(began).String())
		until(t, "all partitions are closed", func() bool { return a.open.Load() == 0 })
		t.Attr("closed", time.Since(began).String())
		<-time.After(5 * time.Second) // they try to open meanwhile
		if errs := a.errors(); len(errs) != 1 || !errors.Is(errs[0], consumer.ErrTopicMissing) {
			t.Errorf("%d errors: %v", len(errs), errs)
		}

		began = time.Now()
		r.kafka.CreateTopic(r.topic, n)
		r.produce(10, ids(n)...)
		until(t, "all messages of the new topic", func() bool { return a.count.Load() == 110*n })
		t.Attr("read-again", time.Since(began).String())
		a.leave()
		for _, err := range a.errors()[1:] {
			if !errors.Is(err, consumer.ErrRecreated) { // once for each partition
				t.Error(err)
			}
		}
	})
}
