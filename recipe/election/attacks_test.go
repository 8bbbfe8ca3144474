package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// §9 of the attacks on recipes: the link of the leader is dead for some time, while its session lives. The context of its
// function ends in time, and nobody else leads before the function has returned.
func TestNobodyFollowsWhileTheFunctionStops(t *testing.T) {
	const twoLeaders = "two leaders"
	inWorld(t, func(w *world) {
		s := w.Session("one")
		one := w.election(s, "one")
		leads, stopped, done := make(chan context.Context, 1), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- one.Run(w.Context(), func(ctx context.Context) error {
				leads <- ctx
				<-stopped
				return nil
			})
		}()
		ctx := <-leads
		next := w.run(w.election(w.Session("two"), "two"))
		wait()
		id := w.ID(s)
		client := w.Net.Client("one")
		client.BlackHole(zktest.Both)
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, session.ErrTrustLost) {
			w.Errorf("ended with %v", cause)
		}
		client.Heal()
		time.Sleep(time.Minute)
		if w.ID(s) != id {
			w.Fatal("the session expired: nothing was tested")
		}
		if len(next.leads) != 0 {
			w.Errorf(twoLeaders + ": the next one leads while the function of the first is running")
		}
		close(stopped)
		w.Check(<-done)
		<-next.leads
		next.answer <- nil
	})
}
