package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// The callbacks, as errors name them.
const (
	callObserver    = "Observer"
	callInterceptor = "an interceptor"
	callSetup       = "Setup"
	callCleanup     = "Cleanup"
	callHandler     = "handler"
	callFence       = "Fence"
)

// callbacks calls the user's functions, each call on a goroutine of its own. So a panic, runtime.Goexit or a call that never
// returns affects that call alone, and the caller decides how long to wait for it.
type callbacks struct {
	usercall.Calls // bounds all calls but those of ConsumeClaim and Fence, which have no limit and are made by Guard

	log    *slog.Logger
	report func(error)
	leave  context.CancelCauseFunc // makes the member leave

	mu    sync.Mutex
	left  error // why the member was made to leave
	ended bool  // end has read left; from then on no call is reported as stuck
}

func newCallbacks(limit time.Duration, log *slog.Logger, errs *errlog.Log, report func(error), leave context.CancelCauseFunc) *callbacks {
	u := &callbacks{log: log, report: report, leave: leave}
	u.Guard, u.Limit, u.Stuck = usercall.Guard{Package: "consumer", Err: ownership.ErrCallback, Log: errs}, limit, u.reportStuck
	return u
}

// ofOne returns a callback about one partition.
func ofOne(kind string, p kiel.Partition) usercall.Callback {
	return usercall.Callback{Kind: kind, About: p.String(), Name: kind + " of " + p.String()}
}

// reportStuck logs and reports a call that does not return. A stuck Observer makes the member leave: no partition can be opened
// without it, so others are to get the member's partitions.
func (u *callbacks) reportStuck(what usercall.Callback, since time.Duration) (again bool) {
	err := stuck("%s has not returned for %v", what.Kind, since.Round(time.Second))
	u.mu.Lock()
	late, first := u.ended, what.Kind == callObserver && u.left == nil
	if !late && first {
		u.left = err
	}
	u.mu.Unlock()
	if late {
		return false
	}
	u.log.Error("callback has not returned", "callback", what.Kind, "after", since)
	u.report(err)
	if first {
		u.leave(err)
	}
	return true
}

// end waits until every call has returned, until the deadline at most. From the call of end on no callback is called. The error
// names the callbacks that have not returned, or the one that made the member leave.
func (u *callbacks) end(deadline context.Context) error {
	returned := kafkaconn.Await(deadline, u.End())
	if kinds := u.Kinds(); !returned && len(kinds) > 0 {
		return stuck("%s did not return in time", strings.Join(kinds, ", "))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	return u.left
}

// goUntil calls f, and then then, on a goroutine of its own. When the deadline has passed it calls then alone, with an error that
// wraps usercall.ErrNotStarted.
func (u *callbacks) goUntil(deadline context.Context, name string, f func() error, then func(error)) {
	if deadline.Err() == nil && u.Go(usercall.Callback{Kind: name}, f, then) != nil {
		return
	}
	go then(failure("", "", operr.Mark(fmt.Errorf("no time was left, %s was %w", name, usercall.ErrNotStarted), ownership.ErrStuck)))
}
