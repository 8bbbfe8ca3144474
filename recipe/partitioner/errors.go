package partitioner

import (
	"errors"
	"fmt"
)

var (
	// ErrMembersChanged is the cause of an allocation that ended because a member came or
	// went: stop, then ReleaseSet.
	ErrMembersChanged = errors.New("partitioner: members changed")

	// ErrReleased is the cause of an allocation that ReleaseSet gave back.
	ErrReleased = errors.New("partitioner: released")

	// ErrFinished is why the state is FAILURE after Finish, and the cause of an allocation
	// that was given back so.
	ErrFinished = errors.New("partitioner: finished")

	// ErrDuplicate says that an older member has our identifier. Identifiers must differ.
	ErrDuplicate = errors.New("partitioner: another member has our identifier")

	// ErrPartitionTime says that no allocation was had within Options.MaxPartitionTime.
	ErrPartitionTime = errors.New("partitioner: no allocation within MaxPartitionTime")

	// ErrFunction says that the partition function failed, or picked what is no item.
	ErrFunction = errors.New("partitioner: partition function failed")

	// ErrNotStarted says that Start was not called. While Run goes on it is its context that
	// ends it.
	ErrNotStarted = errors.New("partitioner: not started")

	// ErrStarted says that Start or Run was called before, and has not ended.
	ErrStarted = errors.New("partitioner: started before")

	// ErrNoFunction says that Run was given no function.
	ErrNoFunction = errors.New("partitioner: no function to work with")

	// ErrUnfinished says that our znodes, those of a member and of contenders for our items, may still
	// stand: for too long the servers were not heard of, or refused to delete them. They are removed in
	// the background, or go with their session; Finish waits for that. If the session's Run has ended,
	// which the error wraps then as session.ErrClosed or what else Run has returned, they go within one
	// session timeout, and there is nothing to wait for.
	ErrUnfinished = errors.New("partitioner: what we had may still stand, it is given up in the background")
)

// FailedError says why the state is FAILURE.
type FailedError struct {
	Path string // the partitioner's path
	Err  error
}

// Error tells the reason.
func (e *FailedError) Error() string {
	return fmt.Sprintf("partitioner: %s failed: %v", e.Path, e.Err)
}

// Unwrap returns the reason.
func (e *FailedError) Unwrap() error { return e.Err }
