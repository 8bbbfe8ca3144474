package session

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

var (
	errLost    = errors.New("session: connection lost")              // a request got no answer
	errUnclear = errors.New("session: server failed in some manner") // the answer does not say what was done
)

// Codes for which go-zookeeper has no error.
const (
	codeSystemError          = -1
	codeRuntimeInconsistency = -2 // in a multi: rolled back
	codeDataInconsistency    = -3
	codeConnectionLoss       = -4   // the server lost its own connection
	codeOperationTimeout     = -7   // the server gave up waiting
	codeRequestTimeout       = -122 // likewise
	codeAuthRequired         = -124 // enforced authentication, and we have not
	codeQuotaExceeded        = -125
	codeThrottled            = -127
)

// serverError turns an error of go-zookeeper into one of ours. What means that no answer came is errLost.
func serverError(err error) error {
	switch {
	case err == nil:
		return nil
	case isMultiError(err):
		return err // its reason has been through here
	case errors.Is(err, zk.ErrNoNode):
		return ErrNoNode
	case errors.Is(err, zk.ErrNodeExists):
		return ErrNodeExists
	case errors.Is(err, zk.ErrBadVersion):
		return ErrBadVersion
	case errors.Is(err, zk.ErrNotEmpty):
		return ErrNotEmpty
	case errors.Is(err, zk.ErrNoAuth):
		return ErrNoAuth
	case errors.Is(err, zk.ErrInvalidACL):
		return ErrInvalidACL
	case errors.Is(err, zk.ErrAuthFailed):
		return ErrAuthFailed
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return ErrEphemeralParent
	case errors.Is(err, zk.ErrSessionExpired):
		return ErrSessionExpired
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		// Never sent, or sent to a server that we had left and that therefore ignored it.
		return ErrBusy
	case errors.Is(err, zk.ErrInvalidPath):
		return ErrInvalidPath
	case errors.Is(err, zk.ErrAPIError), errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrReconfigDisabled),
		errors.Is(err, zk.ErrNothing), errors.Is(err, zk.ErrInvalidFlags):
		return fmt.Errorf("%w: %w", ErrServer, err)
	}
	if code, ok := unknownCode(err); ok {
		return codeError(code)
	}
	// ErrConnectionClosed, ErrClosing, whatever writing to the connection returned, a reply that can't be decoded.
	return fmt.Errorf("%w: %w", errLost, err)
}

// codeError is the meaning of a code that go-zookeeper does not know.
func codeError(code int32) error {
	switch code {
	case codeRuntimeInconsistency:
		return ErrRolledBack
	case codeConnectionLoss, codeOperationTimeout, codeRequestTimeout:
		return fmt.Errorf("%w: server's code %d", errLost, code)
	case codeAuthRequired:
		return fmt.Errorf("%w: the server demands credentials (code %d)", ErrAuthFailed, code)
	case codeQuotaExceeded:
		return ErrQuotaExceeded
	case codeThrottled:
		return ErrBusy
	case codeSystemError, codeDataInconsistency:
		return fmt.Errorf("%w: %w (code %d)", ErrServer, errUnclear, code)
	default:
		return fmt.Errorf("%w: code %d", ErrServer, code)
	}
}

// unknownCode returns the code of a server's answer that go-zookeeper has no error for. It gives the code in the text
// only.
func unknownCode(err error) (int32, bool) {
	var code int32
	if n, scanErr := fmt.Sscanf(err.Error(), "unknown error: %d", &code); n != 1 || scanErr != nil {
		return 0, false
	}
	return code, true
}

func isMultiError(err error) bool {
	_, ok := errors.AsType[*MultiError](err)
	return ok
}
