package ownership_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Claims that do not change are not listed again: 24 s of calm cost a member no more than its proofs and a few requests, in a
// group of 100,000 claims.
func TestCalmCostsNoList(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 100_000 {
			noerr.Must(t, w.srv.Create(fmt.Sprintf("%s/topic-%04d:%d", owners, i/64, i%64), nil))
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
	inWorld(t, func(t *testing.T, w *world) {
		const foreign = owners + "/t:9"
		noerr.Must(t, w.srv.Create(foreign, nil))
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
		noerr.Last(t)(a.ses.Current().Create(context.Background(), owners+"/t:2", data, session.Ephemeral))
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

// all counts all requests but proofs of life, which are multis of one check, and pings.
func (w *world) all() (take func() map[zktest.Op]int) {
	var mu sync.Mutex
	ops := make(map[zktest.Op]int)
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		mu.Lock()
		defer mu.Unlock()
		proof := r.Op == zktest.OpMulti && len(r.Ops) == 1 && r.Ops[0].Op == zktest.OpCheck
		if r.Op != zktest.OpPing && !proof {
			ops[r.Op]++
		}
		return zktest.Action{}
	})
	return func() map[zktest.Op]int {
		mu.Lock()
		defer mu.Unlock()
		taken := ops
		ops = make(map[zktest.Op]int)
		return taken
	}
}

// A member claims a thousand partitions with as few requests as go into packets, watches them with some, and asks for nothing but
// the sweep's two reads in a session timeout while nothing changes. Its connection may be lost meanwhile.
func TestThousandClaimsCostFewRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const n = 1000
		a := w.owning("a", items(1), memberOptions{})
		time.Sleep(timeout + time.Second)
		take := w.all()
		w.assign(map[string]string{"a": items(n)})
		a.owns(5*time.Second, items(n))
		time.Sleep(time.Second)
		got := take()
		t.Attr("requests_for_1000_claims", fmt.Sprint(got))
		if reads := got[zktest.OpExists] + got[zktest.OpGetData] + got[zktest.OpGetChildren2] + got[zktest.OpSync]; got[zktest.OpMulti] > 2*n/100 || got[zktest.OpSetWatches] > n/40 || reads > 4 {
			t.Errorf("for %d claims %v", n, got)
		}
		time.Sleep(2 * timeout) // a sweep has read some claims, since the names have changed
		take()
		time.Sleep(10 * timeout)
		got = take()
		t.Attr("requests_in_calm", fmt.Sprint(got))
		if got[zktest.OpSync] > 10 || got[zktest.OpExists] > 10 || len(got) > 2 {
			t.Errorf("in ten session timeouts of calm %v", got)
		}
		a.client.Cut()
		time.Sleep(time.Second)
		got = take()
		t.Attr("requests_after_a_lost_connection", fmt.Sprint(got))
		if got[zktest.OpSetWatches] == 0 || got[zktest.OpSetWatches] > n/40 || got[zktest.OpExists] > 1 || got[zktest.OpGetData] > 0 {
			t.Errorf("after a lost connection %v", got)
		}
		before := a.token("t:7")
		noerr.Must(t, w.srv.Delete(owners+"/t:7"))
		w.within(time.Second, "claimed again", func() bool { return a.token("t:7") > before })
	})
}

// When the names of the claims have changed, a member reads some of its own, in turn: a name does not say whose the claim is.
func TestClaimsAreReadInTurn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.owning("a", items(40), memberOptions{})
		time.Sleep(timeout + time.Second)
		var mu sync.Mutex
		read := make(map[string]bool)
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			if r.Op == zktest.OpExists {
				read[r.Path] = true
			}
			return zktest.Action{}
		})
		for i := range 3 {
			noerr.Must(t, w.srv.Create(fmt.Sprintf("%s/other:%d", owners, i), nil))
			time.Sleep(timeout)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range 40 {
			if item := fmt.Sprintf("/t:%d", i); !read[owners+item] || !read[epochs+item] {
				t.Errorf("the znodes of %s were not read", item)
			}
		}
	})
}
