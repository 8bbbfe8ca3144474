package attacks_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// claims matches the request that claims partition 0.
func claims(r *zktest.Request) bool {
	return r.Op == zktest.OpMulti && len(r.Ops) == 2 && r.Ops[0].Op == zktest.OpSetData && strings.HasSuffix(r.Ops[1].Path, "/owners/t:0")
}

// Execution §3: a claim is made, its reply is lost with the link, the plan changes, and the link comes back in the same session.
// (That the same is so of a claim that never was on its way is tested in package ownership.)
func TestClaimWhoseCallerGaveUp(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{TickTime: time.Second}, func(w *world) *outcome {
		link := w.net.Client("b")
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client != "b" || !claims(r) {
				return zktest.Action{}
			}
			link.Refuse()
			return zktest.Action{LoseReply: true}
		})
		opts := options{session: session.Options{Timeout: 6 * time.Second}}
		old := w.member("b", opts)
		w.within(5*time.Second, "the claim stands", func() bool { return w.holder() != 0 })
		heir := w.member("a", opts)
		time.Sleep(time.Second)
		w.srv.SetHook(nil)
		link.Heal()
		began := time.Now()
		took, owned := poll(time.Minute, func() bool { return heir.owned() == "0" })
		ses := old.sessionID()
		orphan := w.holder() == ses && ses != 0
		if got := w.srv.Stats().SessionsReattached; got == 0 {
			w.t.Fatalf("b came back in another session, %v later", time.Since(began))
		}
		o := w.close()
		if !owned {
			o.harmed(unowned, "nobody owns it for a minute; its claim is held by the session of who does not want it: %v", orphan)
		} else {
			o.figure("owned-after", took)
		}
		return o
	}))
}
