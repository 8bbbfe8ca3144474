package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/errlog"
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

// callbacks calls what the user gave, each call on a goroutine of its own. So
// whatever happens there, a panic, runtime.Goexit or nothing at all, happens to
// the call; who made it decides how long to wait for it.
type callbacks struct {
	usercall.Calls // but for ConsumeClaim and Fence, which take as long as they do: these are made by Guard

	log    *slog.Logger
	report func(error)
	leave  context.CancelCauseFunc // makes the member leave

	mu    sync.Mutex
	left  error // why the member was made to leave
	ended bool  // end has looked at left: from then on no call is said to be stuck
}

func newCallbacks(limit time.Duration, log *slog.Logger, errs *errlog.Log, report func(error), leave context.CancelCauseFunc) *callbacks {
	u := &callbacks{log: log, report: report, leave: leave}
	u.Guard, u.Limit, u.Stuck = usercall.Guard{Err: ownership.ErrCallback, Log: errs}, limit, u.sayStuck
	return u
}

// ofOne names a callback that is about one partition.
func ofOne(kind string, p kiel.Partition) usercall.Callback {
	return usercall.Callback{Kind: kind, About: p.String(), Name: kind + " of " + p.String()}
}

// sayStuck says that a call does not return. Without the Observer nothing is opened: the member leaves, so that others get
// what it has.
func (u *callbacks) sayStuck(what usercall.Callback, since time.Duration) (again bool) {
	err := fmt.Errorf("consumer: %w: %s has not returned for %v", ownership.ErrStuck, what.Kind, since.Round(time.Second))
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

// end waits until every call has returned, until late ends at most; meanwhile and
// from then on none is made. It returns what did not return, or made the member
// leave.
func (u *callbacks) end(late context.Context) error {
	returned := kafkaconn.Await(late, u.End())
	if kinds := u.Kinds(); !returned && len(kinds) > 0 {
		return fmt.Errorf("consumer: %w: %s did not return in time", ownership.ErrStuck, strings.Join(kinds, ", "))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	return u.left
}

// errAbandoned says that a call was waited for long enough; end returns which.
var errAbandoned = errors.New("consumer: abandoned")

// callBounded calls f and waits for it, until late ends at most; after that it does
// not call it, and the error says so.
func (u *callbacks) callBounded(late context.Context, name string, f func() error) error {
	if late.Err() != nil {
		return fmt.Errorf("consumer: %w: no time was left, %s was %w", ownership.ErrStuck, name, usercall.ErrNotStarted)
	}
	c := u.Go(usercall.Callback{Kind: name}, f, nil)
	if !kafkaconn.Await(late, c.Returned()) {
		return errAbandoned
	}
	return c.Result()
}
