package lock

import (
	"errors"

	"github.com/kielgo/kiel/internal/seqnode"
)

var (
	// ErrNotAcquired says that TryAcquire found others in front. The error is a
	// [*recipe.BlockedError] that names the first of them.
	ErrNotAcquired = errors.New("lock: not acquired")

	// ErrLost is the cause of a hold whose contender was removed by somebody else.
	// Another may hold the lock already: stop, then Release.
	ErrLost = errors.New("lock: contender was removed by somebody else")

	// ErrReleased is the cause of a hold that was released.
	ErrReleased = errors.New("lock: released")

	// ErrSequenceExhausted says that the lock's znode has seen nearly 2^31 contenders,
	// after which their numbers order nothing. Delete it while nobody uses the lock.
	ErrSequenceExhausted = seqnode.ErrSequenceExhausted
)
