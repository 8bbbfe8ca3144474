package zones

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kielgo/kiel/session"
)

var (
	// ErrUnreadable says that the znode's data are not zones; the message has the path and the reason.
	ErrUnreadable = errors.New("unreadable data")

	// ErrTooLarge says that zones were not written because they would not fit the znode.
	ErrTooLarge = errors.New("zones too large for one znode")

	// ErrInvalid says that a zone, a topic or a partition id is invalid. No request was sent.
	ErrInvalid = errors.New("invalid zones")
)

// tooLargeError is an ErrTooLarge of zones that the session has refused to write.
type tooLargeError struct {
	bytes int
	cause error // the session's; its text begins with an operation and the path, which would be named twice
}

func (e *tooLargeError) Error() string {
	_, limit, _ := strings.Cut(e.cause.Error(), strings.TrimPrefix(session.ErrTooLarge.Error(), "session: ")+": ")
	return fmt.Sprintf("%v: %d bytes of data: %s", ErrTooLarge, e.bytes, limit)
}

// Unwrap returns ErrTooLarge and the session's error.
func (e *tooLargeError) Unwrap() []error { return []error{ErrTooLarge, e.cause} }
