package zones

import "errors"

var (
	// ErrUnreadable says that the znode holds what can't be understood; the message has the path and why.
	ErrUnreadable = errors.New("zones: unreadable data")

	// ErrTooLarge says that zones were not written because they would not fit the znode.
	ErrTooLarge = errors.New("zones: too large for one znode")

	// ErrInvalid says that a zone, a topic or a partition id given is none. Nothing was sent.
	ErrInvalid = errors.New("zones: invalid")
)
