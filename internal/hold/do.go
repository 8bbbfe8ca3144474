package hold

import (
	"context"
	"errors"
	"slices"

	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/recipe"
)

// Held is what lasts as long as its context: a [recipe.Hold], or several.
type Held interface{ Context() context.Context }

// under is the context of a hold. It also has the hold itself and the values of the caller's context.
type under[H Held] struct {
	context.Context //nolint:containedctx // under is a context

	values context.Context //nolint:containedctx // the caller's context, used for its values
	held   H
}

type key[H Held] struct{}

type callerKey struct{}

// Value looks in the caller's context first, then in the hold's. A value that is itself a context is the exception: package
// context uses such a value to find the parent of a child. The parent must be the hold's context, or the child would end a moment
// later.
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

// From returns the innermost hold of type H under which a function was called with ctx, or the zero value if there is none.
func From[H Held](ctx context.Context) H {
	held, _ := ctx.Value(key[H]{}).(H)
	return held
}

// In returns ctx with a hold that [From] finds in it.
func In[H Held](ctx context.Context, held H) context.Context {
	return context.WithValue(ctx, key[H]{}, held)
}

// Outlive returns the context with which to wait for the release of a hold. A function that runs under a hold may release that
// hold with its own context, which ends by the release, and still learns the outcome: if ctx ended with one of causes, Outlive
// returns the context of the caller of [Under]. Otherwise Outlive returns ctx.
func Outlive(ctx context.Context, causes ...error) context.Context {
	caller, ok := ctx.Value(callerKey{}).(context.Context)
	if !ok || !slices.Contains(causes, context.Cause(ctx)) {
		return ctx
	}
	return Outlive(caller, causes...)
}

// Under calls fn with a context that ends with the hold and with ctx. The context has the values of ctx, and [From] finds the
// hold in it. Under returns fn's error; ended reports whether that error says only that the context has ended.
func Under[H Held](ctx context.Context, held H, fn func(ctx context.Context) error) (err error, ended bool) {
	life, end := context.WithCancelCause(under[H]{Context: held.Context(), values: ctx, held: held})
	defer end(context.Canceled)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	if ctx.Err() != nil {
		end(context.Cause(ctx)) // before fn begins
	}
	err = fn(life)
	return err, pause.OnlyEnd(life, err)
}

// On is the handle with which [Do] works.
type On struct {
	Recipe, Path string        // for errors
	Turn         chan struct{} // full while a function runs, if only one may run at a time; nil if several may
}

// Do acquires a hold, calls fn under it, releases it, and returns the errors of all three. If fn's error says only that its
// context has ended, Do returns the reason for that end instead, which is nil if ctx has ended. It first waits for its turn; if
// ctx ends meanwhile, Do returns a [*recipe.BlockedError].
//
// Release is called when fn has returned. Done says that fn has returned nil. Lost is why the hold ended before fn returned; it
// is nil if the hold lasts or ended with one of the causes in released. Release returns the error that Do adds to fn's. When fn
// panics or ends its goroutine, release is called with done false.
func Do[H recipe.Hold](
	ctx context.Context,
	on On,
	acquire func(ctx context.Context) (H, error),
	fn func(ctx context.Context) error,
	release func(ctx context.Context, held H, done bool, lost error) error,
	released ...error,
) error {
	if fn == nil {
		return Wrap(ctx, on.Recipe, "do", on.Path, recipe.ErrNoFunction)
	}
	if on.Turn != nil {
		select {
		case on.Turn <- struct{}{}:
			defer func() { <-on.Turn }()
		case <-ctx.Done():
			return &recipe.BlockedError{Recipe: on.Recipe, Path: on.Path, Err: context.Cause(ctx)}
		}
	}
	held, err := acquire(ctx)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			_ = release(ctx, held, false, nil)
		}
	}()
	err, ended := Under(ctx, held, fn)
	returned = true
	if !held.Valid() {
		<-held.Context().Done() // within a moment: Valid reads the clock, and the context follows it
	}
	lost := context.Cause(held.Context())
	for _, r := range released {
		if errors.Is(lost, r) {
			lost = nil
		}
	}
	reason := release(ctx, held, err == nil, lost)
	switch {
	case ended && (reason != nil || ctx.Err() != nil), err == nil:
		return reason
	case reason == nil:
		return err
	}
	return errors.Join(err, reason)
}

// Release releases a hold for [Do]. It returns lost and the error of the release. When ctx ends first, the release goes on in the
// background, which is no error.
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
