package counter

import "errors"

var (
	// ErrValue says that the znode's data is not a number of the counter's kind. Nothing was written. [Counter.Set] and
	// [Counter.Reset] replace the data.
	ErrValue = errors.New("data is not a number of this kind")

	// ErrRange says that a number does not fit the counter's type: the one in the znode, or the result of a change. Nothing was
	// written.
	ErrRange = errors.New("number out of range")
)
