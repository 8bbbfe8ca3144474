package ownership_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Claims that do not change are not listed again: 24 s of calm cost a member no more than its proofs and a few requests, in a
// group of 100,000 claims.
func TestCalmCostsNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		for i := range 100_000 {
			if err := w.srv.Create(fmt.Sprintf("%s/topic-%04d:%d", owners, i/64, i%64), nil); err != nil {
				t.Fatal(err)
			}
		}
		traffic := &recipetest.Traffic{}
		w.owning("a", items(3), memberOptions{traffic: traffic})
		time.Sleep(timeout + time.Second) // until it was listed once
		before := traffic.Received()
		time.Sleep(24 * time.Second)
		received := traffic.Received() - before
		t.Attr("received_in_24s_of_100000_claims", fmt.Sprint(received))
		if received > 20_000 {
			t.Errorf("%d bytes received in 24 s without a change", received)
		}
	})
}

// The sweep goes on while the list does not change, and lists the claims when it has.
func TestSweepListsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		const foreign = owners + "/t:9"
		if err := w.srv.Create(foreign, nil); err != nil {
			t.Fatal(err)
		}
		a := w.owning("a", items(3), memberOptions{})
		w.assign(map[string]string{"a": items(3) + " t:9"})
		time.Sleep(time.Second)
		w.assign(map[string]string{"a": items(3)}) // a sent a claim for t:9, so its first sweep looks at it
		take := w.requests(owners, foreign)
		time.Sleep(timeout)
		if got := take(); !slices.Equal(got, []zktest.Op{zktest.OpSync, zktest.OpGetChildren2, zktest.OpSync, zktest.OpGetData}) {
			t.Errorf("for the first sweep %v", got)
		}
		time.Sleep(timeout)
		if got := take(); !slices.Equal(got, []zktest.Op{zktest.OpSync, zktest.OpExists}) {
			t.Errorf("for a sweep in calm %v", got)
		}
		data, _, _ := w.srv.Get(owners + "/t:2")
		w.assign(map[string]string{"a": items(2)})
		a.owns(time.Second, items(2))
		time.Sleep(time.Second)
		// As many claims as before, of which one is a's without its knowing.
		if _, err := a.ses.Current().Create(context.Background(), owners+"/t:2", data, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		w.within(timeout, "swept away", func() bool { return w.holder("t:2") == 0 })
		if got := take(); !slices.Contains(got, zktest.OpGetChildren2) {
			t.Errorf("for a sweep after a change %v", got)
		}
	})
}

// requests returns what was asked about these znodes since it was called last.
func (w *world) requests(paths ...string) (take func() []zktest.Op) {
	var mu sync.Mutex
	var ops []zktest.Op
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		mu.Lock()
		defer mu.Unlock()
		if slices.Contains(paths, r.Path) {
			ops = append(ops, r.Op)
		}
		return zktest.Action{}
	})
	return func() []zktest.Op {
		mu.Lock()
		defer mu.Unlock()
		taken := ops
		ops = nil
		return taken
	}
}
