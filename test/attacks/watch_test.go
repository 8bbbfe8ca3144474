package attacks_test

import (
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A claim is relied on when its request is answered, and watched a moment later. Somebody removes it in between, or while its
// owner has no connection, and no event comes from a watch that was not set, or is gone with the connection. The servers compare
// what is to be watched with the transaction since which it is: the owner learns of the removal with the watch, and claims again.
// Without that it works on without a claim until its next sweep, and a new owner may work beside it.
func TestClaimRemovedUnwatched(t *testing.T) {
	for name, remove := range map[string]func(w *world, deed func()){
		"before it is watched": func(w *world, deed func()) {
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op == zktest.OpSetWatches {
					deed()
				}
				return zktest.Action{}
			})
		},
		"while there is no connection": func(w *world, deed func()) {
			time.Sleep(time.Second)
			w.net.Refuse()
			w.net.Client("a").Cut()
			deed()
			time.Sleep(time.Second)
			w.net.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			withstood(t, bubble(t, zktest.Options{TickTime: 2 * time.Second}, func(w *world) *outcome {
				const timeout = 12 * time.Second
				var removed time.Time
				var token int64
				joined := time.Now()
				deed := sync.OnceFunc(func() {
					_, stat, ok := w.srv.Get(w.path("owners", "t:0"))
					if err := w.srv.Delete(w.path("owners", "t:0")); err != nil || !ok {
						t.Errorf("remove the claim: %v", err)
					}
					removed, token = time.Now(), stat.Czxid
				})
				if name == "before it is watched" {
					remove(w, deed)
				}
				a := w.member("a", options{session: session.Options{Timeout: timeout}})
				a.owns(5*time.Second, "0")
				if name != "before it is watched" {
					remove(w, deed)
				}
				deed() // if it never is watched
				_, claimed := poll(timeout/2, func() bool { return a.token(0) > token })
				took := time.Since(removed)
				o := w.close()
				o.figure("claimed-again-after", took)
				o.figure("joined", removed.Sub(joined))
				o.forgive(overlap)
				if !claimed {
					o.harmed(stalled, "its owner goes on without a claim for %v", took)
				}
				return o
			}))
		})
	}
}
