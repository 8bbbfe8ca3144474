package pause

import (
	"context"
	"reflect"
	"slices"
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

// OnlyEnd reports whether err says only that ctx has ended: err is ctx's error or the cause of its end, or wraps such errors and
// no other. An error that is joined with them says more.
func OnlyEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && only(err, ctx.Err(), context.Cause(ctx))
}

// only reports whether err is one of ends, says so with its method Is, or wraps only such errors.
func only(err error, ends ...error) bool {
	if err == nil {
		return false
	}
	if reflect.ValueOf(err).Comparable() && slices.Contains(ends, err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // this is the unwrapping
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(one error) bool { return !only(one, ends...) })
	case interface{ Unwrap() error }:
		return only(e.Unwrap(), ends...)
	case interface{ Is(target error) bool }:
		return slices.ContainsFunc(ends, e.Is)
	}
	return false
}
