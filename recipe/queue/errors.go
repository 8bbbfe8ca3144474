package queue

import "errors"

var (
	// ErrEmpty says that TryGet found nothing to take.
	ErrEmpty = errors.New("empty")

	// ErrPriority says that a priority is not between 0 and 999. Nothing was put.
	ErrPriority = errors.New("priority is not between 0 and 999")

	// ErrLost is the cause of a hold's end when somebody else deleted its znode. A Consume that came after that, or after the end
	// of the hold's session, wraps ErrLost too. Stop the work: another process may have the entry already.
	ErrLost = errors.New("hold on the entry was lost")

	// ErrConsumed is the cause of a hold's end after Consume was called.
	ErrConsumed = errors.New("entry was consumed")

	// ErrReleased is the cause of a hold's end after Release was called.
	ErrReleased = errors.New("entry was released")

	// ErrSequenceExhausted says that nearly 2^31 entries were made in the queue's directory. After that many their sequence
	// numbers no longer order them. Nothing was put. Delete the directory while nobody uses the queue, and make a new handle.
	ErrSequenceExhausted = errors.New("sequence numbers of the directory are used up")
)
