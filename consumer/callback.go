package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// The callbacks, as errors name them.
const (
	callObserver    = "Observer"
	callInterceptor = "an interceptor"
	callSetup       = "Setup"
	callCleanup     = "Cleanup"
)

// callbacks calls what the user gave, each call on a goroutine of its own. So
// whatever happens there, a panic, runtime.Goexit or nothing at all, happens to
// the call; who made it decides how long to wait for it.
type callbacks struct {
	guard  usercall.Guard
	limit  time.Duration // after which a call is said to be stuck
	report func(error)
	leave  context.CancelCauseFunc // makes the member leave
	calls  kafkaconn.Calls         // those under way, but for ConsumeClaim

	mu    sync.Mutex
	names map[string]int // the same by name, once they have begun
	over  bool           // nothing is called any more
	stuck error          // why the member was made to leave
}

func newCallbacks(limit time.Duration, log *slog.Logger, report func(error), leave context.CancelCauseFunc) *callbacks {
	return &callbacks{
		guard: usercall.Guard{Err: ownership.ErrCallback, Log: log},
		limit: limit, report: report, leave: leave, names: map[string]int{},
	}
}

// callback is one call. A nil one has returned nil.
type callback struct {
	done chan struct{}
	err  error // once done is closed
}

// returned is closed when the call is over; nil when it is.
func (c *callback) returned() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.done
}

// result waits for the end of the call.
func (c *callback) result() error {
	if c == nil {
		return nil
	}
	<-c.done
	return c.err
}

// goGuarded calls f on a goroutine of its own, and then, if that is not nil, then
// with the outcome. A panic is an error, and so is the end of the goroutine.
func (u *callbacks) goGuarded(name string, f func() error, then func(error)) *callback {
	c := &callback{done: make(chan struct{})}
	go u.guard.Call(name, func() { c.err = f() }, func(failure error) {
		if failure != nil {
			c.err = failure
		}
		if then != nil {
			then(c.err)
		}
		close(c.done)
	})
	return c
}

// errNotStarted says that the end came before a call.
var errNotStarted = errors.New("not started")

// goTimed is goGuarded for what should return soon: it is reported when it does not.
// After end nothing is called: then there is no call, or it did nothing, which is no
// error for then.
func (u *callbacks) goTimed(name string, f func() error, then func(error)) *callback {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return nil
	}
	u.calls.Begin()
	returned := usercall.Watch(u.limit, func(since time.Duration) bool { return u.sayStuck(name, since) })
	begun := false
	return u.goGuarded(name, func() error {
		if begun = u.begin(name); !begun {
			return errNotStarted
		}
		return f()
	}, func(err error) {
		returned()
		if !begun {
			err = nil
		}
		if then != nil {
			then(err)
		}
		if begun {
			u.finish(name)
		}
		u.calls.End()
	})
}

// begin notes that a call begins, unless nothing is called any more.
func (u *callbacks) begin(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		u.names[name]++
	}
	return !u.over
}

func (u *callbacks) finish(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.names[name]--; u.names[name] == 0 {
		delete(u.names, name)
	}
}

// ended says whether nothing is called any more.
func (u *callbacks) ended() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.over
}

// sayStuck says that a call does not return, unless all is over. Without the
// Observer nothing is opened: the member leaves, so that others get what it has.
func (u *callbacks) sayStuck(name string, since time.Duration) bool {
	err := fmt.Errorf("consumer: %w: %s has not returned for %v", ownership.ErrStuck, name, since.Round(time.Second))
	u.mu.Lock()
	over, first := u.over, name == callObserver && u.stuck == nil
	if first && !over {
		u.stuck = err
	}
	u.mu.Unlock()
	if over {
		return false
	}
	u.guard.Log.Error("callback has not returned", "callback", name, "after", since)
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
	u.mu.Lock()
	u.over = true
	u.mu.Unlock()
	returned := kafkaconn.Await(late, u.calls.Ended())
	u.mu.Lock()
	defer u.mu.Unlock()
	if !returned && len(u.names) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(u.names)), ", ")
		return fmt.Errorf("consumer: %w: %s did not return in time", ownership.ErrStuck, names)
	}
	return u.stuck
}

// errAbandoned says that a call was waited for long enough; end returns which.
var errAbandoned = errors.New("consumer: abandoned")

// callBounded calls f and waits for it, until late ends at most; after that it does
// not call it, and the error says so.
func (u *callbacks) callBounded(late context.Context, name string, f func() error) error {
	if late.Err() != nil {
		return fmt.Errorf("consumer: %w: no time was left, %s was %w", ownership.ErrStuck, name, errNotStarted)
	}
	c := u.goTimed(name, f, nil)
	if !kafkaconn.Await(late, c.returned()) {
		return errAbandoned
	}
	return c.result()
}
