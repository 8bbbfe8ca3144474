package session

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

var (
	errLost    = errors.New("connection lost") // the request got no answer
	errUnclear = errors.New("unclear answer")  // the answer does not say what was done

	// errDemanded says that the servers close sessions that have not authenticated by a certain scheme (enforce.auth.schemes).
	errDemanded = fmt.Errorf("the servers demand other credentials (code %d): those of a scheme in their enforce.auth.schemes, or SASL, "+
		"which is not supported yet", codeAuthRequired)
)

// Codes for which go-zookeeper has no error.
const (
	codeSystemError          = -1
	codeRuntimeInconsistency = -2 // in a multi: rolled back
	codeDataInconsistency    = -3
	codeConnectionLoss       = -4   // the server lost its own connection
	codeOperationTimeout     = -7   // the server gave up waiting
	codeRequestTimeout       = -122 // the server gave up waiting
	codeAuthRequired         = -124 // the server demands authentication, and we have not authenticated
	codeQuotaExceeded        = -125
	codeThrottled            = -127
)

// serverError turns an error of go-zookeeper into one of this package. An error that means that no answer came becomes errLost.
func serverError(err error) error {
	switch {
	case err == nil:
		return nil
	case isMultiError(err):
		return err // its Err has been through serverError
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
		// The request was never sent, or was ignored by a server that the session had left.
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
	// These are ErrConnectionClosed, ErrClosing, errors of writing to the connection and replies that can't be decoded.
	return fmt.Errorf("%w: %w", errLost, err)
}

// codeError returns our error for a code that go-zookeeper does not know.
func codeError(code int32) error {
	switch code {
	case codeRuntimeInconsistency:
		return ErrRolledBack
	case codeConnectionLoss, codeOperationTimeout, codeRequestTimeout:
		return fmt.Errorf("%w: server code %d", errLost, code)
	case codeAuthRequired:
		return fmt.Errorf("%w: %w", ErrAuthFailed, errDemanded)
	case codeQuotaExceeded:
		return ErrQuotaExceeded
	case codeThrottled:
		return ErrBusy
	case codeSystemError, codeDataInconsistency:
		return fmt.Errorf("%w: %w (code %d)", ErrServer, errUnclear, code)
	}
	if code >= minMaxAnswer { // made by netConn.refuse
		return fmt.Errorf("%w: %d bytes", ErrAnswerTooLarge, code)
	}
	return fmt.Errorf("%w: code %d", ErrServer, code)
}

// unknownCode returns the code of an error for which go-zookeeper has no value: go-zookeeper gives the code in the text only.
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

// noAuth returns the error of a check path that our credentials do not let us read.
func (c *client) noAuth(err error) error {
	path := c.opts.CheckPath
	switch {
	case errors.Is(err, errDemanded) && len(c.opts.Auth) == 0:
		return fmt.Errorf("%w; none are given", err)
	case errors.Is(err, errDemanded):
		return fmt.Errorf("%w; given are %v", err, c.opts.Auth)
	case len(c.opts.Auth) == 0:
		return fmt.Errorf("%w: %s can't be read, and no credentials are given: %w", ErrAuthFailed, c.full(path), err)
	}
	return fmt.Errorf("%w: %s can't be read as %v: %w", ErrAuthFailed, c.full(path), c.opts.Auth, err)
}
