package ownership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/operrtest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// Each error that a user gets names the package, the operation or the partition, and the reason once.
func TestErrorsNameAllOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var lost error
		w.assign(map[string]string{"a": "t:0 t:1 a/b:0"})
		a := w.join("a", memberOptions{
			Options: ownership.Options{RebalanceTimeout: 10 * time.Second, Accept: func(p kiel.Partition) error {
				if p.ID == 1 {
					return errors.New("no thanks")
				}
				return nil
			}},
			handler: func(ctx context.Context, c *ownership.Claim) error {
				<-ctx.Done()
				lost = context.Cause(c.Context())
				return errors.New("ouch")
			},
		})
		a.owns(5*time.Second, "t:0")
		noerr.Must(t, w.srv.Delete(owners+"/t:0"))
		time.Sleep(time.Second)
		find := func(target error, parts ...string) {
			t.Helper()
			for _, err := range a.errors() {
				if errors.Is(err, target) {
					operrtest.Once(t, err, "ownership", parts...)
					return
				}
			}
			t.Errorf("no error is a %v: %v", target, a.errors())
		}
		find(ownership.ErrUnclaimed, "partition not claimed", "a/b:0", "has a slash")
		find(ownership.ErrLost, "ownership: t:0: partition lost: "+owners+"/t:0: the claim has gone")
		if want := "partition lost: " + owners + "/t:0: the claim has gone, or is not the one that was made"; lost == nil || lost.Error() != want {
			t.Errorf("the claim's context ended with %v, want %q", lost, want)
		}
		operrtest.Once(t, a.owner.Run(t.Context()), "ownership", "run was called before")
		w.kill(a.sessionID())
		time.Sleep(10 * time.Second)
		noerr.Want(t, a.owner.Stop(t.Context()))
	})
	for want, construct := range map[string]func() (*ownership.Owner, error){
		"the allocator is nil": func() (*ownership.Owner, error) { return ownership.New(nil, nil, ownership.Options{}) },
		"option StopTimeout: -1s is negative": func() (*ownership.Owner, error) {
			return ownership.NewFromSource(newBrain(&session.Session{}, "g", "a"), func(context.Context, *ownership.Claim) error { return nil }, ownership.Options{StopTimeout: -time.Second})
		},
	} {
		_, err := construct()
		operrtest.Once(t, err, "ownership", want)
	}
	operrtest.Once(t, &ownership.StuckError{Partition: part("t:0"), For: time.Minute}, "ownership", "stuck", "t:0", "1m0s")
}
