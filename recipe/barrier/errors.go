package barrier

import "errors"

var (
	// ErrEntered says that an earlier Enter on this DoubleBarrier has not returned, or that its member has not left yet.
	ErrEntered = errors.New("entered already")

	// ErrLost is the cause of a member's context when somebody else deleted its znode. Enter returns it if that happened, or its
	// context ended, after the required number of members had existed.
	ErrLost = errors.New("membership was lost")

	// ErrLeft is the cause of a member's context after Leave was called.
	ErrLeft = errors.New("member has left")
)
