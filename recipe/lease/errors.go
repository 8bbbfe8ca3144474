package lease

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotObtained says that somebody else has the lease. The error wraps a [*TakenError], or one for each slot.
	ErrNotObtained = errors.New("not obtained")

	// ErrExpired is the cause of a hold whose time is up. Renew then returns it, too: obtain the lease anew.
	ErrExpired = errors.New("time of the lease is up")

	// ErrLost is the cause of a hold whose record was removed or written over by somebody else, or can't be watched any more.
	// Stop.
	ErrLost = errors.New("lease was lost")

	// ErrReleased is the cause of a hold that was released or detached.
	ErrReleased = errors.New("lease was released")

	// ErrClockSkew says that the clocks of this machine and of the servers differ by more than half of Options.Skew, or could not
	// be compared so closely.
	ErrClockSkew = errors.New("clocks differ, or the servers are too slow to compare them")

	// ErrBadRecord says that the data of the lease's znode is not a record. Nothing was written.
	ErrBadRecord = errors.New("record can't be read")
)

// TakenError names the holder of a lease. It wraps ErrNotObtained.
type TakenError struct {
	Path   string // the lease's path
	Record Record // the holder's record
}

// Error names the holder. The path is in the error that wraps this one.
func (e *TakenError) Error() string {
	if e.Record.Version != version {
		return fmt.Sprintf("%v: the record has version %d", ErrNotObtained, e.Record.Version)
	}
	return fmt.Sprintf("%v: held by %q until %s", ErrNotObtained, e.Record.Holder, e.Record.End.Format(time.RFC3339))
}

// Unwrap returns ErrNotObtained.
func (e *TakenError) Unwrap() error { return ErrNotObtained }
