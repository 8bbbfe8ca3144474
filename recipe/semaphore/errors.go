package semaphore

import "errors"

var (
	// ErrNotAcquired says that TryAcquire found no lease free, or others in front. The
	// error is a [*recipe.BlockedError].
	ErrNotAcquired = errors.New("semaphore: not acquired")

	// ErrMaxLeases says that the semaphore's znode holds another number of leases than
	// Options.MaxLeases. All who use it must agree. It is the cause of a lease that was taken
	// before the other number was written.
	ErrMaxLeases = errors.New("semaphore: another number of leases was agreed on")

	// ErrLost is the cause of a lease whose znode was removed by somebody else. Another
	// may have taken it already: stop, then Release.
	ErrLost = errors.New("semaphore: lease was lost")

	// ErrReleased is the cause of a lease that was released.
	ErrReleased = errors.New("semaphore: released")
)
