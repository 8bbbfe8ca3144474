package barrier

import "errors"

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
