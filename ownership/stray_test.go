package ownership_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// lag makes a member read from a server that is behind the others: it knows of no claims, until a Sync of this member's has
// made it catch up.
func (w *world) lag(m *member) {
	var synced atomic.Bool
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		read := r.Op == zktest.OpGetData || r.Op == zktest.OpExists || r.Op == zktest.OpGetChildren2
		switch {
		case r.Client != m.name:
		case r.Op == zktest.OpSync:
			synced.Store(true)
		case read && !synced.Load() && strings.HasPrefix(r.Path, owners):
			r.Path = "/behind" + r.Path
		}
		return zktest.Action{}
	})
}

// A claim of this session that stands without our knowing is found by the sweep, though it lists the claims on a server that
// has not heard of this one yet.
func TestSweepOnAServerThatIsBehind(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, data := w.ownedBefore("t:0")
		noerr.Last(t)(a.ses.Current().Create(context.Background(), owners+"/t:0", data, session.Ephemeral))
		w.lag(a)
		w.within(11*time.Second, "swept away", func() bool { return w.holder("t:0") == 0 })
	})
}

// A claim of this session that stands without our knowing is in the way when the plan gives the partition to us. It is not
// waited for as if it were another's, but opened.
func TestStrayClaimInTheWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, data := w.ownedBefore("t:0")
		if _, err := a.ses.Current().Multi(context.Background(),
			session.SetOp(epochs+"/t:0", data, -1), session.CreateOp(owners+"/t:0", data, session.Ephemeral),
		); err != nil {
			t.Fatal(err)
		}
		_, stray, _ := w.srv.Get(owners + "/t:0")
		w.assign(map[string]string{"a": "t:0"})
		a.owns(time.Second, "t:0")
		if a.token("t:0") != stray.Czxid {
			t.Errorf("token %d, the claim that stood is %d", a.token("t:0"), stray.Czxid)
		}
	})
}

// A list of the claims that fails does not end the sweeps: the next one finds what stands without our knowing.
func TestSweepsGoOnAfterAFailedList(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, data := w.ownedBefore("t:0")
		var refused atomic.Int32
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpSync && r.Path == owners && refused.Add(1) == 1 {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		w.within(timeout+time.Second, "a list has failed", func() bool { return refused.Load() > 0 })
		noerr.Last(t)(a.ses.Current().Create(context.Background(), owners+"/t:0", data, session.Ephemeral))
		w.within(timeout+time.Second, "swept away", func() bool { return w.holder("t:0") == 0 })
	})
}

// Another program writes the epoch just before a claim is released, so the release is refused. The claim is looked at and
// released at once: nobody waits for a sweep.
func TestRefusedReleaseIsLookedAt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		var once sync.Once
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client == a.name && releases(*r) {
				once.Do(func() { _ = w.srv.Set(epochs+"/t:0", []byte("another")) })
			}
			return zktest.Action{}
		})
		w.assign(map[string]string{"b": "t:0"})
		b.owns(time.Second, "t:0")
		if _, epoch, _ := w.srv.Get(epochs + "/t:0"); epoch.Version != 3 {
			t.Errorf("the epoch was written %d times, want a's claim, the other program, b's claim", epoch.Version)
		}
		if !slices.ContainsFunc(a.owner.Status().Troubles, func(trouble status.Trouble) bool {
			return trouble.Last == "ownership: release without a clear answer: multi "+epochs+"/t:0: operation 0: version conflict"
		}) {
			t.Errorf("the status does not say why the release has no clear answer: %+v", a.owner.Status().Troubles)
		}
	})
}
