package lease

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotObtained says that somebody else has the lease. The error is a [*TakenError],
	// or wraps one for each slot.
	ErrNotObtained = errors.New("lease: not obtained")

	// ErrExpired is the cause of a hold whose time has come, and what Renew says then:
	// obtain anew.
	ErrExpired = errors.New("lease: time is up")

	// ErrLost is the cause of a hold whose record was removed or written over by somebody
	// else, or can't be looked after any more. Stop.
	ErrLost = errors.New("lease: lost")

	// ErrReleased is the cause of a hold that was released or left.
	ErrReleased = errors.New("lease: released")

	// ErrClockSkew says that the local clock and that of the servers could not be shown
	// to differ by less than half of Options.Skew.
	ErrClockSkew = errors.New("lease: clocks differ, or the servers are too slow to tell")

	// ErrBadRecord says that the lease's znode has something else than a record. Nothing
	// was written.
	ErrBadRecord = errors.New("lease: record can't be read")
)

// TakenError says who has a lease. It wraps ErrNotObtained.
type TakenError struct {
	Path   string // the lease's path
	Record Record
}

// Error names the holder.
func (e *TakenError) Error() string {
	if e.Record.Version != version {
		return fmt.Sprintf("%v: %s has a record of version %d", ErrNotObtained, e.Path, e.Record.Version)
	}
	return fmt.Sprintf("%v: %s is held by %q until %s", ErrNotObtained, e.Path, e.Record.Holder, e.Record.End.Format(time.RFC3339))
}

// Unwrap returns ErrNotObtained.
func (e *TakenError) Unwrap() error { return ErrNotObtained }
