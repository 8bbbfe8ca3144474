package pause

import (
	"context"
	"errors"
	"reflect"
	"time"
)

// Outlast returns a context that has ctx's values and ends d after ctx does. The caller calls stop.
func Outlast(ctx context.Context, d time.Duration) (late context.Context, stop context.CancelFunc) {
	late, end := context.WithCancelCause(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		_ = Sleep(late, d)
		end(context.DeadlineExceeded)
	})
	return late, func() {
		forget()
		end(nil)
	}
}

// OnlyEnd reports whether err says only that ctx has ended: err is ctx's error or the cause of its end, or wraps one of them and
// no other error. An error that is joined with them says more.
func OnlyEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (isOnly(err, ctx.Err()) || isOnly(err, context.Cause(ctx)))
}

// isOnly reports whether err is why, says so with its method Is, or wraps such an error and no other.
func isOnly(err, why error) bool {
	for ; err != nil; err = errors.Unwrap(err) { // Unwrap returns nil for an error that wraps several
		if reflect.TypeOf(err).Comparable() && err == why { //nolint:errorlint // the loop unwraps
			return true
		}
		if is, ok := err.(interface{ Is(target error) bool }); ok && is.Is(why) {
			return true
		}
	}
	return false
}
