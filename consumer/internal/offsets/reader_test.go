package offsets

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/allocfn"
)

func TestReadsThatWaitTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{Hold: make(chan struct{}), offsets: map[allocfn.Partition]Stored{tp("t", 3): {Offset: 33}}}
		r := NewReader(store)
		ctx, cancel := context.WithCancel(t.Context())
		go r.Run(ctx)
		results := make(chan int64, 10)
		for i := range int32(10) {
			go func() {
				s, err := r.Get(t.Context(), tp("t", i))
				if err != nil {
					t.Error(err)
				}
				results <- s.Offset
			}()
			if i == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		close(store.Hold)
		var got []int64
		for range 10 {
			got = append(got, <-results)
		}
		slices.Sort(got)
		if got[0] != -1 || got[9] != 33 || len(store.Fetches()) != 2 {
			t.Errorf("got %v in %d requests", got, len(store.Fetches()))
		}
		cancel()
		<-r.done
		if _, err := r.Get(t.Context(), tp("t", 0)); !errors.Is(err, ErrEnded) {
			t.Errorf("get after the end: %v", err)
		}
	})
}
