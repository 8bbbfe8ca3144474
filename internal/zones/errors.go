package zones

import (
	"errors"
)

var (
	// ErrUnreadable says that the znode's data are not zones; the message has the path and the reason.
	ErrUnreadable = errors.New("unreadable data")

	// ErrTooLarge says that zones were not written because they would not fit the znode.
	ErrTooLarge = errors.New("zones too large for one znode")

	// ErrInvalid says that a zone, a topic or a partition id is invalid. No request was sent.
	ErrInvalid = errors.New("invalid zones")
)
