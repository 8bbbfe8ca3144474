package attacks_test

import (
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Execution §5: a connect request reaches a server with a lower limit of session timeouts, and its reply is lost.
func TestLostConnectReply(t *testing.T) {
	const least = 4 * time.Second
	var o *outcome
	const steps = 4
	for step := range steps {
		o = o.worse(bubble(t, zktest.Options{}, func(w *world) *outcome {
			opts := options{session: session.Options{Timeout: 30 * time.Second, MinSessionTimeout: least}}
			a := w.member("a", opts)
			a.owns(5*time.Second, "0")
			b := w.member("b", options{session: opts.session})
			time.Sleep(time.Minute + time.Duration(step)*time.Second)
			link := w.net.Client("a")
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Client != "a" || r.Op != zktest.OpConnect {
					return zktest.Action{}
				}
				r.Timeout = least // all that this server grants
				link.Refuse()
				return zktest.Action{LoseReply: true}
			})
			link.Cut()
			b.owns(10*time.Second, "0")
			time.Sleep(30 * time.Second)
			w.srv.SetHook(nil)
			return w.close()
		}))
	}
	withstood(t, o)
}
