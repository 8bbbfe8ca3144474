package sharedset

import "errors"

var (
	// ErrUnreadable says that the znode holds something other than a JSON array of
	// strings; the message has the path and the position. It is left as it is: somebody
	// must repair or empty the znode.
	ErrUnreadable = errors.New("sharedset: unreadable data")

	// ErrTooLarge says that a change was not made because the set would not fit a packet;
	// the message has the numbers of items and bytes, and the limit.
	ErrTooLarge = errors.New("sharedset: set too large for one znode")

	// ErrInvalidItem says that an item is no valid UTF-8 or has a control character in it.
	// Nothing was sent.
	ErrInvalidItem = errors.New("sharedset: invalid item")
)
