package partitioner

import (
	"errors"

	"github.com/kielgo/kiel/internal/operr"
)

var (
	// ErrMembersChanged is the cause of an allocation that ended because a member joined or left: stop the work, then call
	// ReleaseSet.
	ErrMembersChanged = errors.New("members changed")

	// ErrReleased is the cause of an allocation that ReleaseSet gave back.
	ErrReleased = errors.New("allocation was released")

	// ErrFinished is the reason of FAILURE after Finish, and the cause of an allocation that Finish gave back.
	ErrFinished = errors.New("partitioner was finished")

	// ErrDuplicate says that an older member has this member's identifier. Identifiers must differ.
	ErrDuplicate = errors.New("an older member has the same identifier")

	// ErrPartitionTime says that there was no allocation within Options.MaxPartitionTime.
	ErrPartitionTime = errors.New("no allocation within MaxPartitionTime")

	// ErrFunction says that the partition function failed, or picked a name that is no item.
	ErrFunction = errors.New("partition function failed")

	// ErrNotStarted says that Start was not called. ReleaseSet and Finish also return it during Run, which releases the items
	// when its function has returned; end Run's context to finish.
	ErrNotStarted = errors.New("not started")

	// ErrStarted says that Start or Run was called before, and has not ended.
	ErrStarted = errors.New("already started")

	// ErrUnfinished says that the znodes of this member and of its contenders for items may still exist, because the servers did
	// not answer for too long, or refused to delete them. The znodes are deleted in the background, or when their session ends;
	// Finish waits for that. If [session.Session.Run] has ended, the error also wraps session.ErrClosed or the error of that Run;
	// then the znodes are deleted within one session timeout, and there is nothing to wait for.
	ErrUnfinished = errors.New("this member's znodes may still exist; they are deleted in the background")
)

// errFailed stands in front of the reason why the state is FAILURE.
var errFailed = errors.New("failed")

// FailedError says why the state is FAILURE.
type FailedError struct {
	Path string // the partitioner's path
	Err  error  // the reason
}

// Error names the path and the reason.
func (e *FailedError) Error() string {
	return operr.New("", "", e.Path, operr.Because(errFailed, e.Err)).Error()
}

// Unwrap returns the reason.
func (e *FailedError) Unwrap() error { return e.Err }
