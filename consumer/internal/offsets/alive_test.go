package offsets

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
)

// A Committer is alive while it answers, while it waits for the store, and when it has ended; not while somebody stops it.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{}
		cm, stop := committerOn(t, store, true)
		alive := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			err := cm.Alive(ctx)
			return time.Since(began), err
		}
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("at work: %v after %v", err, took)
		}
		tr := openAt(t, cm, tp("t", 0), 0)
		store.Slow = make(chan struct{})
		tr.Mark(1, "")
		time.Sleep(2 * time.Second) // its commit is under way
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("waiting for the store: %v after %v", err, took)
		}
		stuck := make(chan struct{})
		cm.options.Count = func(kiel.Partition, error, time.Duration) { <-stuck }
		close(store.Slow)
		synctest.Wait()
		if took, err := alive(); err == nil || took != 5*time.Second {
			t.Errorf("stuck: %v after %v", err, took)
		}
		close(stuck)
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("at work again: %v after %v", err, took)
		}
		stop()
		if took, err := alive(); err != nil || took > 0 {
			t.Errorf("ended: %v after %v", err, took)
		}
	})
}
