package party_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/zktest"
)

// A reading of many members that took long is followed by a pause that is longer: 500 members join one after the other, and each
// reading takes over a second.
func TestSlowReadingsAreRarer(t *testing.T) {
	inWorld(t, func(w *world) {
		const crowd = 500
		o := w.observe()
		o.await(time.Second, "none", func(v *party.View) bool { return len(v.Members) == 0 })
		for i := range crowd {
			must(w, w.Srv.Create(node(fmt.Sprintf("before-%03d", i)), nil))
		}
		o.await(20*time.Second, "all", func(v *party.View) bool { return len(v.Members) == crowd })
		w.Net.Client("observer").Delay(200 * time.Millisecond)
		time.Sleep(2 * timeout)
		lists := func() int {
			n := w.Srv.Stats().Requests
			return n[zktest.OpGetChildren] + n[zktest.OpGetChildren2]
		}
		before, began := lists(), time.Now()
		for i := range 400 {
			must(w, w.Srv.Create(node(fmt.Sprintf("later-%03d", i)), nil))
			time.Sleep(50 * time.Millisecond)
		}
		took := time.Since(began)
		readings := lists() - before
		// One takes 1.2 s or more and is followed by 2 s; otherwise 0.5 s would follow.
		if readings < 3 || readings > 6 {
			w.Errorf("%d readings in %v, want 3 to 6", readings, took)
		}
		o.await(10*time.Second, "the last", func(v *party.View) bool { return slices.Contains(names(v), "later-399") })
	})
}
