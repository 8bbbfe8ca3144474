package ownership_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// gate keeps the first request that matches from being answered, until it is opened.
type gate struct {
	match   func(*zktest.Request) bool
	reached atomic.Bool
	open    chan struct{}
}

// gates sets a hook with one gate for each of the functions.
func (w *world) gates(matches ...func(*zktest.Request) bool) []*gate {
	gates := make([]*gate, len(matches))
	for i, match := range matches {
		gates[i] = &gate{match: match, open: make(chan struct{})}
	}
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		for _, g := range gates {
			if g.match(r) && g.reached.CompareAndSwap(false, true) {
				<-g.open
			}
		}
		return zktest.Action{}
	})
	return gates
}

// createsEpoch matches the creation of the epoch of item, which comes before its first claim.
func createsEpoch(item string) func(*zktest.Request) bool {
	return func(r *zktest.Request) bool {
		return len(r.Ops) > 0 && r.Ops[0].Op == zktest.OpCreate && r.Ops[0].Path == epochs+"/"+item
	}
}

// A claim waits for its epoch when the newest plan gives the partition to another, so the claim is not sent. The member does not
// come to see that plan, because Accept is slow, and a later one gives the partition back: it is claimed all the same.
func TestClaimAfterAPlanThatWasSkipped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var pause atomic.Int64
		a := w.owning("a", "t:9", memberOptions{Options: ownership.Options{Accept: func(kiel.Partition) error {
			time.Sleep(time.Duration(pause.Load()))
			return nil
		}}})
		epoch := w.gates(createsEpoch("t:0"))[0]
		plan := func(plan map[string]string) {
			w.assign(plan)
			time.Sleep(100 * time.Millisecond)
		}
		plan(map[string]string{"a": "t:0 t:9"})
		if !epoch.reached.Load() {
			t.Fatal("t:0 is not about to be claimed")
		}
		pause.Store(int64(2 * time.Second))
		plan(map[string]string{"a": "t:0 t:9"}) // Accept is asked about this one for 4 s
		plan(map[string]string{"a": "t:9", "b": "t:0"})
		close(epoch.open)
		time.Sleep(time.Second)
		if _, stat, _ := w.srv.Get(epochs + "/t:0"); stat.Version != 0 {
			t.Fatal("t:0 was claimed though the newest plan gives it to another")
		}
		plan(map[string]string{"a": "t:0 t:9"})
		pause.Store(0)
		a.owns(30*time.Second, "t:0 t:9")
	})
}

// A claim is not sent because the newest plan gives the partition to another. It waits for the rest of its batch, and meanwhile a
// later plan gives the partition back and is acted on: the partition is claimed when the batch is done.
func TestClaimAfterAPlanThatWasUsedMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:9", memberOptions{})
		gates := w.gates(createsEpoch("t:0"), func(r *zktest.Request) bool { return claims(*r) && strings.HasSuffix(r.Ops[0].Path, "/t:1") })
		plan := func(plan map[string]string) {
			w.assign(plan)
			time.Sleep(100 * time.Millisecond)
		}
		plan(map[string]string{"a": "t:0 t:1 t:9"}) // one batch
		plan(map[string]string{"a": "t:1 t:9", "b": "t:0"})
		close(gates[0].open) // t:0 is not sent, t:1 is
		time.Sleep(100 * time.Millisecond)
		if !gates[1].reached.Load() {
			t.Fatal("t:1 is not being claimed alone")
		}
		plan(map[string]string{"a": "t:0 t:1 t:9"})
		close(gates[1].open)
		a.owns(30*time.Second, "t:0 t:1 t:9")
	})
}
