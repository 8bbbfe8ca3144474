package sharedset

import (
	"errors"
)

var (
	// ErrUnreadable says that the znode holds something other than a JSON array of strings; the message has the path and the
	// position. No member writes over such data: somebody must repair or empty the znode.
	ErrUnreadable = errors.New("unreadable data")

	// ErrTooLarge says that a change was not made because the set would not fit a packet; the message has the numbers of items
	// and bytes, and the limit.
	ErrTooLarge = errors.New("set too large for one znode")

	// ErrInvalidItem says that an item is not valid UTF-8 or has a control character. No request was sent.
	ErrInvalidItem = errors.New("invalid item")

	// ErrNotNeeded is for the caller of a change: when the change's context ends with it as its cause, because somebody else has
	// made the change, it counts as one that had nothing to do.
	ErrNotNeeded = errors.New("the change is not needed any more")
)
