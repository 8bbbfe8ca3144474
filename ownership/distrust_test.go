package ownership_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// proof reports whether a request is a proof of life.
func proof(r *zktest.Request) bool { return r.Op == opMulti && len(r.Ops) == 1 }

// A member whose proofs of life are not answered may read on. Once its trust has ended it claims nothing: it could not say
// whether it owns what it claimed, and others would wait for it.
func TestNothingIsClaimedWithoutTrust(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:9", memberOptions{})
		time.Sleep(time.Second)
		listed, gate := atomic.Bool{}, make(chan struct{})
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetChildren2 && r.Path == owners { // comes before the claims
				listed.Store(true)
				<-gate
			}
			return zktest.Action{Ignore: proof(r)}
		})
		w.assign(map[string]string{"a": items(4) + " t:9"})
		w.within(15*time.Second, "trust ends", func() bool { return a.ses.Current() == nil })
		close(gate)
		time.Sleep(3 * time.Second)
		if claimed := w.srv.Children(owners); !listed.Load() || !slices.Equal(claimed, []string{"t:9"}) {
			t.Errorf("listed %v; without trust these are claimed: %v", listed.Load(), claimed)
		}
		w.srv.SetHook(nil)
		a.owns(15*time.Second, items(4)+" t:9")
	})
}

// An observer is so slow that trust ends, and another member takes over, before it could be told of a claim. Then it is not
// told any more.
func TestClaimedIsNotToldWithoutTrust(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": "t:0 t:1"})
		gate, once := make(chan struct{}), sync.Once{}
		a := w.join("a", memberOptions{Options: ownership.Options{Observer: func(e ownership.Event) {
			if e.Kind == ownership.Claimed {
				once.Do(func() { <-gate })
			}
		}}})
		b := w.join("b", memberOptions{})
		w.within(5*time.Second, "both are claimed", func() bool { return len(w.srv.Children(owners)) == 2 })
		time.Sleep(time.Second)
		a.client.BlackHole(zktest.Both)
		w.assign(map[string]string{"b": "t:0 t:1"})
		b.owns(20*time.Second, "t:0 t:1")
		close(gate)
		time.Sleep(time.Second)
		told := 0
		for _, item := range []string{"t:0", "t:1"} {
			told += strings.Count(w.journal.kinds("a", part(item)), "claimed")
		}
		if told != 1 {
			t.Errorf("told of %d claims, want the one before trust ended", told)
		}
		a.client.Heal()
	})
}

// A claim was seen to stand after trust had ended, and then its session ended. In the next session it is made anew; it is
// not taken for one that stands, and not reported as lost when it is found not to.
func TestNothingIsKeptFromAnEndedSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{})
		time.Sleep(time.Second)
		before, ses := a.token("t:0"), a.sessionID()
		var read atomic.Bool
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			read.Store(read.Load() || r.Op == zktest.OpGetData && r.Path == owners+"/t:0")
			return zktest.Action{Ignore: proof(r)}
		})
		w.within(15*time.Second, "trust ends", func() bool { return a.owned() == "" })
		time.Sleep(time.Second)
		if !read.Load() || w.holder("t:0") != ses {
			t.Fatalf("read %v, held by %x, want %x", read.Load(), w.holder("t:0"), ses)
		}
		w.srv.SetHook(nil)
		w.kill(ses)
		w.within(10*time.Second, "owned again", func() bool { return a.token("t:0") > before })
		if a.told(ownership.ErrLost) > 0 {
			t.Errorf("errors %v", a.errors())
		}
	})
}

// A worker has claimed some of its partitions when it is held up, until that session is over and the next one is trusted.
// Its findings are of the old session: none of them counts as a claim that stands.
func TestLateWorkerTellsOfAnEndedSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a", memberOptions{session: session.Options{MaxPacket: 1024}}) // not all claims in one packet
		time.Sleep(time.Second)
		gate, blocked := make(chan struct{}), atomic.Bool{}
		a.brain.mu.Lock()
		a.brain.asked = func() {
			if len(w.srv.Children(owners)) > 0 && blocked.CompareAndSwap(false, true) { // after the first packet
				<-gate
			}
		}
		a.brain.mu.Unlock()
		w.assign(map[string]string{"a": items(10)})
		w.within(time.Second, "some are claimed", blocked.Load)
		if n := len(w.srv.Children(owners)); n == 0 || n == 10 {
			t.Fatalf("%d are claimed", n)
		}
		ses := a.sessionID()
		w.kill(ses)
		w.within(10*time.Second, "a new session", func() bool { return a.sessionID() != ses && a.sessionID() != 0 })
		time.Sleep(time.Second)
		close(gate)
		a.owns(time.Second, items(10))
		if a.told(ownership.ErrLost) > 0 {
			t.Errorf("errors %v", a.errors())
		}
	})
}
