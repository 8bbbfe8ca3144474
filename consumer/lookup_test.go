package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/allocfn"
)

func TestLookupsThatWaitTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{hold: make(chan struct{}), offsets: map[allocfn.Partition]stored{tp("t", 3): {offset: 33}}}
		l := newLookups(store)
		ctx, cancel := context.WithCancel(t.Context())
		go l.run(ctx)
		results := make(chan int64, 10)
		for i := range int32(10) {
			go func() {
				s, err := l.get(t.Context(), tp("t", i))
				if err != nil {
					t.Error(err)
				}
				results <- s.offset
			}()
			if i == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		close(store.hold)
		var got []int64
		for range 10 {
			got = append(got, <-results)
		}
		slices.Sort(got)
		if got[0] != -1 || got[9] != 33 || len(store.fetches) != 2 {
			t.Errorf("got %v in %d requests", got, len(store.fetches))
		}
		cancel()
		<-l.done
		if _, err := l.get(t.Context(), tp("t", 0)); !errors.Is(err, errEnded) {
			t.Errorf("get after the end: %v", err)
		}
	})
}
