// Package recipe has the common parts of the recipes' packages: the interface of a hold, and the errors that several return. The
// recipes themselves are in the packages below it.
//
// # Overview
//
// Locks, semaphores, leases, elections and the locking queue return holds of their own types, such as *lock.Held. All of these
// are a [Hold], so one function can work with any of them. A call that ends without a hold returns a [*BlockedError] if it saw
// what blocked it.
//
// Package recipe has no state and starts no goroutine.
package recipe

import (
	"context"
	"errors"
	"fmt"
)

// Hold is a lock, a lease of package semaphore or of package lease, or an entry of a queue, that this process has until the
// hold's context ends.
type Hold interface {
	// Context returns the context that ends, with a cause, when the hold can't be trusted any more. It is not derived from the
	// context of the call that returned the hold.
	Context() context.Context

	// Valid reports whether the hold may be relied on at this moment. It does no I/O and costs nanoseconds: call it right before
	// each effect. The context may end a moment after Valid has become false.
	Valid() bool

	// Node returns the path of the znode of the hold.
	Node() string

	// Release ends the hold and removes its znode. Call it when the work under Context has returned, also when the hold was lost.
	// When ctx ends first, the error wraps the cause and the removal goes on in the background.
	Release(ctx context.Context) error
}

// ErrNoFunction says that the function given to Do or Run is nil. They return it at once, wrapped with the recipe's name and
// path.
var ErrNoFunction = errors.New("no function to call")

// BlockedError says what blocked a call when it ended: a znode, or the members of a barrier that were missing. It wraps the cause
// of the end, or the error of a call that does not wait, such as lock.ErrNotAcquired.
type BlockedError struct {
	Recipe     string // the recipe's package, such as "lock"
	Path       string // the path of the lock, the lease, the semaphore, the election, the queue or the barrier
	Blocker    string // the path of the blocking znode, as seen at most a session timeout ago; "" if there is none
	Identifier string // the first 256 bytes of the blocker's data; "" if unknown
	Detail     string // more that was seen, such as "2 ahead", "3 taken" or "1 of 3 members"; "" if nothing was
	Err        error  // why the call ended
}

// Error names the recipe and its path, and says what blocked the call.
func (e *BlockedError) Error() string { return e.Recipe + ": " + e.Text() }

// Text is Error without the recipe's name. It goes into the text of an error of another package, which names that package.
func (e *BlockedError) Text() string {
	switch {
	case e.Blocker == "" && e.Detail != "":
		return fmt.Sprintf("%s: %s: %v", e.Path, e.Detail, e.Err)
	case e.Blocker == "":
		return fmt.Sprintf("%s: blocked by another call on this handle: %v", e.Path, e.Err)
	}
	detail := ""
	if e.Detail != "" {
		detail = ", " + e.Detail
	}
	return fmt.Sprintf("%s: blocked by %s (identifier %q%s): %v", e.Path, e.Blocker, e.Identifier, detail, e.Err)
}

// Unwrap returns why the call ended.
func (e *BlockedError) Unwrap() error { return e.Err }
