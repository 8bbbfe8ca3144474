package semaphore

import (
	"errors"
	"fmt"
)

var (
	// ErrNotAcquired says that TryAcquire found no lease free, or others in front. The
	// error is a [*BlockedError].
	ErrNotAcquired = errors.New("semaphore: not acquired")

	// ErrMaxLeases says that the semaphore's znode holds another number of leases than
	// Options.MaxLeases. All who use it must agree. It is the cause of a lease that was taken
	// before the other number was written.
	ErrMaxLeases = errors.New("semaphore: another number of leases was agreed on")

	// ErrLost is the cause of a lease whose znode was removed by somebody else. Another
	// may have taken it already: stop, then Release.
	ErrLost = errors.New("semaphore: lease was removed by somebody else")

	// ErrReleased is the cause of a lease that was released.
	ErrReleased = errors.New("semaphore: released")
)

// BlockedError says what was in the way when waiting for a lease ended: a lease, who is first at
// the inner lock, or another goroutine that acquires through this handle. It wraps the cause of
// that end, or ErrNotAcquired.
type BlockedError struct {
	Path       string // the semaphore's path
	Blocker    string // the path of the znode in the way, as last seen; "" for another call on the same handle
	Identifier string // what its data says about whose it is; at most 256 bytes, "" when unknown
	Leases     int    // how many leases were taken; 0 when others at the inner lock are in front
	Err        error
}

// Error names the znode in the way.
func (e *BlockedError) Error() string {
	if e.Blocker == "" {
		return fmt.Sprintf("semaphore: %s: blocked by another call on this handle: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("semaphore: %s: blocked by %s (identifier %q, %d leases taken): %v", e.Path, e.Blocker, e.Identifier, e.Leases, e.Err)
}

// Unwrap returns what ended the waiting.
func (e *BlockedError) Unwrap() error { return e.Err }
