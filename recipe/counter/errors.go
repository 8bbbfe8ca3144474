package counter

import "errors"

var (
	// ErrValue says that the znode's data is no number of the counter's kind. Nothing
	// was written; [Counter.Set] and [Counter.Reset] replace it.
	ErrValue = errors.New("counter: data is no such number")

	// ErrRange says that a number does not fit the counter's type: the one in the znode
	// or the one that a change would have made. Nothing was written.
	ErrRange = errors.New("counter: number out of range")
)
