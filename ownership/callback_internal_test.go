package ownership

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/session"
)

// still is an allocator that does nothing.
type still struct {
	Source
	ses *session.Session
}

func (s still) Session() *session.Session { return s.ses }
func (still) Group() string               { return "g" }
func (still) Member() string              { return "a" }
func (still) GroupPath() string           { return "/kiel/groups/g" }

// A callback that has returned before the loop comes to hear that it is stuck is not.
func TestCallbackThatReturnedAfterAll(t *testing.T) {
	limit := usercall.Limit(time.Minute)
	for name, test := range map[string]struct {
		lasts time.Duration
		want  int
	}{
		"returned":        {lasts: limit + 2*time.Second},
		"does not return": {lasts: 2 * limit, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				o, err := newOwner(scripted{still{}}, func(context.Context, *Claim) error { return nil }, Options{
					RebalanceTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
					Observer: func(Event) { time.Sleep(test.lasts) }, OnError: func(error) { told++ },
				})
				noerr.Must(t, err)
				l := newLoop(t.Context(), o)
				l.phase = draining // else it leaves
				o.loop.Store(l)
				l.say(Event{Kind: Snapshot})
				time.Sleep(limit + 3*time.Second) // the loop has something else to do
				synctest.Wait()
				(<-l.inbox)()
				<-o.users.observer.Close()
				<-o.users.onError.Close()
				if told != test.want {
					t.Errorf("%d errors, want %d", told, test.want)
				}
			})
		})
	}
}
