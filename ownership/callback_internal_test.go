package ownership

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/usercall"
)

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
				m, _ := promreg.New(nil, "g", newMetrics)
				log := slog.New(slog.DiscardHandler)
				l := &loop{
					o:     &Owner{opts: Options{RebalanceTimeout: time.Minute}, log: log, troubles: errlog.New(log), metrics: m},
					inbox: make(chan func(), inboxLen), done: make(chan struct{}), errors: newMailbox(0, nil),
					phase: draining, // else it leaves
				}
				returned := make(chan error, 1)
				go func() { returned <- l.call(callObserver, "claimed", func() { time.Sleep(test.lasts) }) }()
				defer func() {
					if err := <-returned; err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(limit + 3*time.Second) // the loop has something else to do
				synctest.Wait()
				(<-l.inbox)()
				if n := len(l.errors.queue); n != test.want {
					t.Errorf("%d errors, want %d", n, test.want)
				}
			})
		})
	}
}
