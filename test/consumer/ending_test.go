package consumer_test

import (
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
)

// An Observer that is slow, though not stuck, costs no commit: the next owner begins where this one stopped.
func TestSlowObserverCostsNoCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.produce(1, 0)
		a := r.member("a", func(o *consumer.Options) {
			tell := o.Observer
			o.Observer = func(e consumer.Event) {
				tell(e)
				if e.Kind == consumer.Message {
					time.Sleep(12 * time.Second) // longer than the last commit may take
				}
			}
			o.CommitInterval = time.Hour
		}).start()
		until(t, "it was read", func() bool { return a.h.count() == 1 })
		a.leave()
		if at := r.committed(topic, 0); at != 1 {
			t.Errorf("committed up to %d, want 1", at)
		}
		b := r.member("b", nil).start()
		time.Sleep(10 * time.Second)
		b.leave()
		if again := b.h.offsets(topic, 0); len(again) != 0 {
			t.Errorf("b read %v again", again)
		}
		r.check(false)
	})
}
