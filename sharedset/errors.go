package sharedset

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kielgo/kiel/session"
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
)

// tooLargeError is an ErrTooLarge of a change that the session has refused.
type tooLargeError struct {
	items, bytes int
	cause        error // the session's; its text begins with an operation and the path, which would be named twice
}

func (e *tooLargeError) Error() string {
	_, limit, _ := strings.Cut(e.cause.Error(), strings.TrimPrefix(session.ErrTooLarge.Error(), "session: ")+": ")
	return fmt.Sprintf("%v: %d items are %d bytes of data: %s", ErrTooLarge, e.items, e.bytes, limit)
}

// Unwrap returns ErrTooLarge and the session's error.
func (e *tooLargeError) Unwrap() []error { return []error{ErrTooLarge, e.cause} }
