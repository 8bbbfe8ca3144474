package barrier

import (
	"errors"
	"fmt"
)

var (
	// ErrEntered says that a DoubleBarrier was to be entered that is being entered or
	// has been, and was not left yet.
	ErrEntered = errors.New("barrier: entered already")

	// ErrLost is the cause of a member's context when somebody else removed its znode.
	// Enter returns it if that happened, or its context ended, after the number was complete.
	ErrLost = errors.New("barrier: znode was removed by somebody else")

	// ErrLeft is the cause of a member's context after Leave was called.
	ErrLeft = errors.New("barrier: left")
)

// BlockedError says what was in the way when waiting ended. It wraps the cause of that end.
type BlockedError struct {
	Path       string // the barrier's path
	Blocker    string // the path of the znode in the way; "" if members were missing
	Identifier string // its data: who says to be standing there; at most 256 bytes
	Members    int    // of a DoubleBarrier that was not entered: how many members stood
	Clients    int    // and how many must
	Err        error  // with session.ErrUncertain in it if others may have entered with us
}

// Error names the znode in the way, or how many members were missing.
func (e *BlockedError) Error() string {
	if e.Blocker == "" {
		return fmt.Sprintf("barrier: %s: %d of %d members: %v", e.Path, e.Members, e.Clients, e.Err)
	}
	return fmt.Sprintf("barrier: %s: blocked by %s (identifier %q): %v", e.Path, e.Blocker, e.Identifier, e.Err)
}

// Unwrap returns what ended the waiting.
func (e *BlockedError) Unwrap() error { return e.Err }
