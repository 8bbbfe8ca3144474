// Package recipe has what the recipes' packages have in common: the interface of what is held, and the
// error that says what was in the way of getting it. The recipes themselves are in the packages below it.
//
// # Overview
//
// Locks, semaphores, leases, elections and the locking queue hand out holds of types of their own, such as *lock.Held. All of these
// are a [Hold], so a program can be written for any. Waiting that ends without a hold returns a [*BlockedError] if something was seen in the way.
//
// Package recipe does nothing by itself: it has no state and starts no goroutine.
package recipe

import (
	"context"
	"errors"
	"fmt"
)

// Hold is something that is ours until its context ends: a lock, a lease of a semaphore, a lease, or an entry of a queue.
type Hold interface {
	// Context is the hold: it ends, with a cause, when the hold can't be trusted to be ours any more. It is not derived from
	// the context of the call that returned the hold.
	Context() context.Context

	// Valid reports whether the hold may be relied on at this moment. It asks nobody and costs nanoseconds: call it right
	// before each effect. A context ends a moment after Valid has come to be false.
	Valid() bool

	// Node returns the path of the znode that says that we have it.
	Node() string

	// Release ends the hold and gives up what was held. Call it when the work under Context has returned, also when the hold
	// was lost. When ctx ends first, the error wraps the cause and the rest goes on in the background.
	Release(ctx context.Context) error
}

// ErrNoFunction says that Do was given no function. Nothing was waited for.
var ErrNoFunction = errors.New("recipe: no function to call")

// BlockedError says what was in the way when waiting ended: which znode, or how many members were missing. It wraps the
// cause of that end, or the recipe's error for what can't be had at once, such as lock.ErrNotAcquired.
type BlockedError struct {
	Recipe     string // the recipe's package, such as "lock"
	Path       string // the path of the lock, the semaphore, the queue or the barrier
	Blocker    string // the path of the znode in the way, as last seen: at most a session timeout ago; "" if it is none
	Identifier string // its data: who says to be standing there; at most 256 bytes, "" when unknown
	Ahead      int    // how many contenders for a lock were in front
	Taken      int    // how many leases of a semaphore, or entries of a queue, were taken
	Members    int    // how many members of a double barrier stood that was not entered
	Clients    int    // how many must stand; 0 if it is no double barrier that was to be entered
	Err        error
}

// Error names what was in the way.
func (e *BlockedError) Error() string {
	switch {
	case e.Blocker == "" && e.Clients > 0:
		return fmt.Sprintf("%s: %s: %d of %d members: %v", e.Recipe, e.Path, e.Members, e.Clients, e.Err)
	case e.Blocker == "":
		return fmt.Sprintf("%s: %s: blocked by another call on this handle: %v", e.Recipe, e.Path, e.Err)
	}
	counts := ""
	if e.Ahead > 0 {
		counts = fmt.Sprintf(", %d ahead", e.Ahead)
	}
	if e.Taken > 0 {
		counts = fmt.Sprintf(", %d taken", e.Taken)
	}
	return fmt.Sprintf("%s: %s: blocked by %s (identifier %q%s): %v", e.Recipe, e.Path, e.Blocker, e.Identifier, counts, e.Err)
}

// Unwrap returns what ended the waiting.
func (e *BlockedError) Unwrap() error { return e.Err }
