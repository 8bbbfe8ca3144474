package ownership

import (
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

var (
	// ErrRevoked is the cause with which a handler's context ends when its partition goes to another member, or this one leaves.
	// The claim still stands: finish, commit, return.
	ErrRevoked = errors.New("partition revoked")
	// ErrLost is the cause with which a claim's context ends, and a handler's with it, when the partition may belong to another
	// already: trust ended (the cause then wraps the session's too), the claim vanished, or the handler took longer than
	// RebalanceTimeout. Nothing may be committed.
	ErrLost = errors.New("partition lost")
	// ErrKeep is a cause of the end of Run's context: the membership of a static member (allocator.Options.Static) is to stay.
	// Its znode is not removed, and nobody else gets the partitions. If anything is not in order in the end, as when a handler
	// has not returned, the member leaves all the same. See [Owner.Kept].
	ErrKeep = errors.New("membership is to stay")
	// ErrStuck says that a handler, a callback or a release did not end in time. See [StuckError] for handlers.
	ErrStuck = errors.New("stuck")
	// ErrStopped says that the allocator has ended, and Run with it, though nobody asked it to.
	ErrStopped = errors.New("stopped")
	// ErrUnclaimed says that this member does not claim a partition that it should own: its name can't be a znode's,
	// Options.Accept has refused it, or the session has no room for more claims (then session.ErrEphemeralBudget is wrapped,
	// too).
	ErrUnclaimed = errors.New("partition not claimed")
	// ErrPersistentClaim says that this member can't claim partitions that it should own, because a persistent znode is in the
	// claim's place, left by a restore tool or a mistake. ZooKeeper does not delete it by itself, and nobody can know whether
	// somebody works on the partition. The text names the znodes, or the first of many: once nobody does, delete them by kiel
	// release or [Block.Delete], and the partition is claimed at once. Until then the error is reported again once per session
	// timeout.
	ErrPersistentClaim = errors.New("a persistent znode blocks the partition")
	// ErrForeignClaim says that this member can't claim partitions that it should own, because an ephemeral znode that is no
	// member's is in the claim's place: its data are no claim's record, or it has existed for the session timeout and
	// RebalanceTimeout while its session was no member's. The text names the znodes, or the first of many, with their sessions:
	// they are deleted when the process that has the session ends. Then the partition is claimed at once. Until then the error is
	// reported again once per session timeout. A member that leaves, and whose RebalanceTimeout is longer than this one's, looks
	// the same while it drains.
	ErrForeignClaim = errors.New("a foreign znode blocks the partition")
	// ErrCallback says that a handler, or a callback of the options, has panicked, or ended its goroutine. The text names the
	// panic. Such a handler counts as returned, a partition for which Accept panics is not claimed, and the next calls of
	// Observer and OnError are made all the same. OnError does not receive its own panics.
	ErrCallback = errors.New("callback panicked or ended its goroutine")
	// ErrHandler says that a handler has returned while its partition was still owned. It is called again after a pause. The
	// handler's own error is wrapped, too.
	ErrHandler = errors.New("handler returned while the partition is owned")
)

// pkg names this package in its errors.
const pkg = "ownership"

// exported returns an error of this package as users get it; nil for nil.
func exported(err error) error {
	if err == nil {
		return nil
	}
	return operr.New(pkg, "", "", err)
}

// PartitionError is an error of one partition, as OnError gets it. Its text is that of Err, which names the partition.
type PartitionError struct {
	Partition kiel.Partition
	Err       error
}

// Error returns the text of Err.
func (e *PartitionError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *PartitionError) Unwrap() error { return e.Err }

// StuckError names a partition whose handler still runs long after its context ended. It is an [ErrStuck]. The claim is lost to
// that handler and released; this member does not take the partition again before the handler has returned.
type StuckError struct {
	Partition kiel.Partition
	For       time.Duration // since the end of the handler's context
}

// Error names the partition and the time.
func (e *StuckError) Error() string { return pkg + ": " + e.Text() }

// Text is Error without the name of the package, for texts that name another one.
func (e *StuckError) Text() string {
	return fmt.Sprintf("%v: the handler of %s has not returned for %v after the end of its context", ErrStuck, e.Partition, e.For)
}

// Is makes it an [ErrStuck].
func (e *StuckError) Is(target error) bool { return target == ErrStuck }
