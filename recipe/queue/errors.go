package queue

import "errors"

var (
	// ErrEmpty says that TryGet found nothing to take.
	ErrEmpty = errors.New("queue: empty")

	// ErrPriority says that a priority is not between 0 and 999. Nothing was put.
	ErrPriority = errors.New("queue: priority out of range")

	// ErrLost is the cause of a hold that somebody else ended by removing its znode, and is
	// wrapped by the error of a Consume that came too late for it or for the end of its
	// session. The entry may be worked on by another already: stop.
	ErrLost = errors.New("queue: hold on the entry was lost")

	// ErrConsumed is the cause of a hold after Consume was called.
	ErrConsumed = errors.New("queue: consumed")

	// ErrReleased is the cause of a hold after Release was called.
	ErrReleased = errors.New("queue: released")

	// ErrSequenceExhausted says that the queue's directory has seen nearly 2^31 entries,
	// after which their numbers order nothing. Nothing was put. Delete the directory while
	// nobody uses it, and take a new handle.
	ErrSequenceExhausted = errors.New("queue: sequence numbers of the directory are used up")
)
