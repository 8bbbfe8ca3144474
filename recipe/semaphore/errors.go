package semaphore

import "errors"

var (
	// ErrNotAcquired says that TryAcquire found no free lease, or others in front. The error is a [*recipe.BlockedError].
	ErrNotAcquired = errors.New("not acquired")

	// ErrMaxLeases says that the semaphore's znode has another number of leases than Options.MaxLeases. All users of a semaphore
	// must give the same number. ErrMaxLeases is also the cause of a lease that was taken before the other number was written.
	ErrMaxLeases = errors.New("another number of leases was agreed on")

	// ErrLost is the cause of a lease whose znode was removed by somebody else. Another may have taken the lease already: stop,
	// then call Release.
	ErrLost = errors.New("lease was lost")

	// ErrReleased is the cause of a lease that was released.
	ErrReleased = errors.New("lease was released")
)
