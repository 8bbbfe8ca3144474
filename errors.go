package kiel

import "errors"

// ErrRunTwice is returned by the second call of Run of a value that runs once: a Session, which session.Start runs, a Set, Party,
// PartitionAllocator or Owner. The first Run goes on undisturbed, or has ended; to run again, make another value. When Close or
// Stop was called before Run, the first Run returns nil at once. What may run again has an error of its own for a call that comes
// too early: consumer.ErrBusy and partitioner.ErrStarted.
var ErrRunTwice = errors.New("run was called before")
