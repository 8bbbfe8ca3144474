package hold

import (
	"context"
	"fmt"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/recipe"
)

// opError is the error of a recipe's operation.
type opError struct{ op *operr.Error }

func (e *opError) Error() string { return e.op.Error() }

func (e *opError) Unwrap() error { return e.op.Err }

// Operation is for operr.
func (e *opError) Operation() *operr.Error { return e.op }

// Wrap returns the error of a recipe's operation on a path, which failed with err in a call with ctx. When err comes from an
// inner recipe, such as the lock of a lease, the new error has the outer recipe's name, operation and path in place of the inner
// one's. So the text names them once, and a [*recipe.BlockedError] names the recipe that was called.
func Wrap(ctx context.Context, name, op, path string, err error) error {
	if b, ok := Blocked(ctx, err); ok {
		outer := *b
		outer.Recipe, outer.Path = name, path
		return &outer
	}
	if inner, ok := err.(*opError); ok && err != context.Cause(ctx) { //nolint:errorlint // not what it wraps
		err = inner.op.Err
	}
	return &opError{&operr.Error{Package: name, Op: op, Object: path, Err: err}}
}

// Blocked returns err as a BlockedError if the call with ctx, which returned err, was blocked itself. It ignores errors that err
// wraps and the cause of ctx: these can belong to another call.
func Blocked(ctx context.Context, err error) (blocked *recipe.BlockedError, ok bool) {
	blocked, ok = err.(*recipe.BlockedError)                   //nolint:errorlint // not what it wraps
	return blocked, ok && error(blocked) != context.Cause(ctx) //nolint:errorlint // not what it wraps
}

// Detail returns a [recipe.BlockedError]'s Detail that counts something, such as "3 taken"; "" if n is 0.
func Detail(n int, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, what)
}
