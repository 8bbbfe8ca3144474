package lock

import (
	"errors"

	"github.com/kielgo/kiel/internal/seqnode"
)

var (
	// ErrNotAcquired says that TryAcquire found contenders in front. The error is a [*recipe.BlockedError] that names the first.
	ErrNotAcquired = errors.New("not acquired")

	// ErrLost is the cause of a hold whose contender was removed by somebody else, or is persistent and can't be watched any more
	// because the session's Run has ended. Another may hold the lock already: stop, then call Release.
	ErrLost = errors.New("lock was lost")

	// ErrReleased is the cause of a hold that was released.
	ErrReleased = errors.New("lock was released")

	// ErrSequenceExhausted says that the lock's znode has seen nearly 2^31 contenders, after which their numbers give no order.
	// Delete the znode while nobody uses the lock.
	ErrSequenceExhausted = seqnode.ErrSequenceExhausted
)
