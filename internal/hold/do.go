package hold

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/kielgo/kiel/recipe"
)

// under is the context of a hold, with the values of the caller's context before its own, and with the hold.
type under[H recipe.Hold] struct {
	context.Context //nolint:containedctx // it is one

	values context.Context //nolint:containedctx // the caller's, for its values
	held   H
}

type key[H recipe.Hold] struct{}

type callerKey struct{}

// Value looks into both contexts, and into the caller's first. A value that is a context itself is the exception: package context finds
// by one which context to end a child with, and that must be the hold's, or the child would end a moment after it.
func (u under[H]) Value(k any) any {
	switch k.(type) {
	case key[H]:
		return u.held
	case callerKey:
		return u.values
	}
	v := u.values.Value(k)
	if _, isContext := v.(context.Context); v == nil || isContext {
		if own := u.Context.Value(k); own != nil {
			return own
		}
	}
	return v
}

// From returns the innermost hold of its type under which a function was called with ctx; its zero value when ctx has
// none.
func From[H recipe.Hold](ctx context.Context) H {
	held, _ := ctx.Value(key[H]{}).(H)
	return held
}

// Outlive returns a context to wait with for what gives a hold back. That is ctx, unless it ended because a hold under which a function
// runs was given back, for one of these causes: then it is the context with which that hold's function was called for. So a function may
// give its hold back with its own context, and learn what became of it.
func Outlive(ctx context.Context, causes ...error) context.Context {
	caller, ok := ctx.Value(callerKey{}).(context.Context)
	if !ok || !slices.Contains(causes, context.Cause(ctx)) {
		return ctx
	}
	return Outlive(caller, causes...)
}

// Under calls fn with a context that ends with the hold and with ctx. It has ctx's values, and [From] finds the hold in it.
// Ended reports whether an error says no more than that this context has ended.
func Under[H recipe.Hold](ctx context.Context, held H, fn func(ctx context.Context) error) (err error, ended bool) {
	life, end := context.WithCancelCause(under[H]{Context: held.Context(), values: ctx, held: held})
	defer end(context.Canceled)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	if ctx.Err() != nil {
		end(context.Cause(ctx)) // now, not in a moment
	}
	err = fn(life)
	return err, life.Err() != nil && (saysOnly(err, life.Err()) || saysOnly(err, context.Cause(life)))
}

// saysOnly reports whether err is why, or wraps it and no other error besides.
func saysOnly(err, why error) bool {
	for ; err != nil; err = errors.Unwrap(err) { // an error that wraps several has no Unwrap for this
		if reflect.TypeOf(err).Comparable() && err == why { //nolint:errorlint // what it wraps comes next
			return true
		}
	}
	return false
}

// Do calls fn under a hold that acquire returns, gives it back, and returns the errors of all three. An error of fn's that says
// no more than that its context has ended, alone or wrapped with a text, makes way for the reason, and for nil if that is the end of ctx.
//
// Give gives the hold back when fn has returned; done says that it has returned nil, lost why the hold had ended before that
// unless it was given back by then, which released tells. Give returns what else the caller is to know. When fn panics or ends its
// goroutine, give is called with done false.
func Do[H recipe.Hold](
	ctx context.Context,
	acquire func(ctx context.Context) (H, error),
	fn func(ctx context.Context) error,
	give func(ctx context.Context, held H, done bool, lost error) error,
	released ...error,
) error {
	if fn == nil {
		return recipe.ErrNoFunction
	}
	held, err := acquire(ctx)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			_ = give(ctx, held, false, nil)
		}
	}()
	err, ended := Under(ctx, held, fn)
	returned = true
	if !held.Valid() {
		<-held.Context().Done() // at once, or in a moment: the clock was quicker than the news
	}
	lost := context.Cause(held.Context())
	for _, r := range released {
		if errors.Is(lost, r) {
			lost = nil
		}
	}
	reason := give(ctx, held, err == nil, lost)
	switch {
	case ended && (reason != nil || ctx.Err() != nil), err == nil:
		return reason
	case reason == nil:
		return err
	}
	return errors.Join(err, reason)
}

// Release gives a hold back, and returns why it was lost, if it was, and why it was not given back. It waits for that as long
// as ctx lasts; then that goes on in the background, and is no error.
func Release[H recipe.Hold](ctx context.Context, held H, _ bool, lost error) error {
	err := held.Release(ctx)
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return lost
	case lost == nil:
		return err
	}
	return errors.Join(lost, err)
}
