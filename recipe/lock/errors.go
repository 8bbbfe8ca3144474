package lock

import (
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/seqnode"
)

var (
	// ErrNotAcquired says that TryAcquire found others in front. The error is a
	// [*BlockedError] that names the first of them.
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

// BlockedError says which znode was in the way when waiting for a lock ended. It
// wraps the cause of that end, or ErrNotAcquired.
type BlockedError struct {
	Path       string // the lock's path
	Blocker    string // the path of the contender that was first, as last seen: at most a session timeout ago
	Identifier string // its data: who says to be holding it; at most 256 bytes, "" when unknown
	Ahead      int    // how many contenders were in front
	Err        error
}

// Error names the znode in the way.
func (e *BlockedError) Error() string {
	return fmt.Sprintf("lock: %s: blocked by %s (identifier %q, %d ahead): %v", e.Path, e.Blocker, e.Identifier, e.Ahead, e.Err)
}

// Unwrap returns what ended the waiting.
func (e *BlockedError) Unwrap() error { return e.Err }
