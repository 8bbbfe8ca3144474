package session

import (
	"context"
	"errors"
	"fmt"
)

// The errors of this package. Calls wrap them with the operation and the path; test for them with errors.Is.
var (
	// ErrNoNode says that the znode does not exist. ClassFatal: the same call fails again until somebody creates the znode.
	ErrNoNode = errors.New("no such znode")
	// ErrNodeExists says that the znode to be created exists already. Its EphemeralOwner is the session that it belongs to.
	// ClassFatal.
	ErrNodeExists = errors.New("znode exists")
	// ErrBadVersion says that the znode has another version than the one given: read the znode again. ClassFatal.
	ErrBadVersion = errors.New("version conflict")
	// ErrNotEmpty says that a znode with children can't be deleted. ClassFatal.
	ErrNotEmpty = errors.New("znode has children")
	// ErrNoAuth says that the znode's ACL does not allow this session the operation. ClassFatal.
	ErrNoAuth = errors.New("not allowed by the acl")
	// ErrInvalidACL says that the server does not accept the ACL, for instance an auth-scheme ACL on a connection that has not
	// authenticated. ClassFatal.
	ErrInvalidACL = errors.New("invalid acl")
	// ErrAuthFailed says that the servers refused the credentials, or that the credentials do not allow reading Options.CheckPath
	// and never did. ClassFatal.
	ErrAuthFailed = errors.New("authentication failed")
	// ErrEphemeralParent says that an ephemeral znode can't have children. ClassFatal.
	ErrEphemeralParent = errors.New("ephemeral znodes have no children")
	// ErrQuotaExceeded says that the operation would exceed a quota that the server enforces. ClassFatal.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrSessionExpired says that the ZooKeeper session of this incarnation is over: its ephemeral znodes are deleted, or will
	// be. ClassRetryable: on the next incarnation.
	ErrSessionExpired = errors.New("ZooKeeper session is over")
	// ErrTrustLost is the cause with which an incarnation ends when its ZooKeeper session was not proved alive in time. The
	// session may live on. ClassRetryable: on the next incarnation.
	ErrTrustLost = errors.New("trust lost")
	// ErrUncertain says that a write has no known outcome: its reply was lost, or the caller gave up. It may have happened, and
	// may still happen until the ZooKeeper session ends. ClassUncertain: call Sync and read what is there, before you repeat
	// anything.
	ErrUncertain = errors.New("outcome unknown")
	// ErrBusy says that the server did not take the request, because the server throttles requests or the session has moved to
	// another server. Nothing was done. ClassRetryable.
	ErrBusy = errors.New("server busy")
	// ErrServer is an error answer for which this package has no error of its own; its text has the server's code. ClassFatal.
	ErrServer = errors.New("server error")
	// ErrRolledBack is the error of an operation that was not done because another operation of its Multi was refused.
	// ClassFatal.
	ErrRolledBack = errors.New("rolled back with its multi")
	// ErrClosed says that the Session is closed or being closed, by Close or the end of Run's context. ClassFatal.
	ErrClosed = errors.New("ZooKeeper session is closed")
	// ErrTooLarge says that a request is larger than Options.MaxPacket; nothing was sent. ClassFatal, unless the error wraps
	// ErrCostsConnection, too.
	ErrTooLarge = errors.New("request too large")
	// ErrCostsConnection says that writes of this size, or smaller ones, have cost three connections lately, while other requests
	// were answered: most likely the servers' jute.maxbuffer is smaller than Options.MaxPacket says. Nothing was sent. The error
	// wraps ErrTooLarge, too. ClassBackoff: after ten seconds such a write is tried again; if that costs a connection, too, the
	// next one is tried after twice that time, and so on up to five minutes.
	ErrCostsConnection = errors.New("the servers end the connection")
	// ErrAnswerTooLarge says that the answer to a read is larger than Options.MaxAnswer. ClassFatal: the same call fails again
	// until the znode has less data, or fewer children.
	ErrAnswerTooLarge = errors.New("answer too large")
	// ErrEphemeralBudget says that the paths of this session's ephemeral znodes would take more than Options.EphemeralBudget
	// bytes; nothing was sent. ClassFatal.
	ErrEphemeralBudget = errors.New("budget of ephemeral znodes used up")
	// ErrInvalidPath says that a path is not one that CheckPath accepts. ClassFatal.
	ErrInvalidPath = errors.New("invalid path")
)

// pkg is this package's name in errors.
const pkg = "session"

var errNotRun = errors.New("Run was not called")

// Class says what a caller can do about an error.
type Class int

// The classes of errors.
const (
	// ClassNone is the class of nil.
	ClassNone Class = iota
	// ClassRetryable: nothing was done; the call may be made again, on the next incarnation when this one is over.
	ClassRetryable
	// ClassUncertain: the write may have been done, or may still be; read what is there before you repeat it.
	ClassUncertain
	// ClassFatal: the same call would fail again, or the caller itself ended the call.
	ClassFatal
	// ClassBackoff: nothing was done, and the same call would fail again at once. It may succeed after a while: repeat it after
	// pauses that grow, and report the error.
	ClassBackoff
)

// String returns "none", "retryable", "uncertain", "fatal" or "backoff".
func (c Class) String() string {
	switch c {
	case ClassNone:
		return "none"
	case ClassRetryable:
		return "retryable"
	case ClassUncertain:
		return "uncertain"
	case ClassFatal:
		return "fatal"
	case ClassBackoff:
		return "backoff"
	default:
		return fmt.Sprintf("class %d", int(c))
	}
}

// Classify returns the class of an error of this package, however it is wrapped. An error that is ErrUncertain and something else
// besides (the session ended, the caller's context did) is uncertain, because that is what the caller must act on. The error of a
// context is fatal, because the caller asked for the end; so is every error that is not of this package.
func Classify(err error) Class {
	switch {
	case err == nil:
		return ClassNone
	case errors.Is(err, ErrUncertain):
		return ClassUncertain
	case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ClassFatal
	case errors.Is(err, ErrSessionExpired), errors.Is(err, ErrTrustLost), errors.Is(err, ErrBusy):
		return ClassRetryable
	case errors.Is(err, ErrCostsConnection):
		return ClassBackoff
	default:
		return ClassFatal
	}
}

// Retryable reports whether Classify(err) is ClassRetryable.
func Retryable(err error) bool { return Classify(err) == ClassRetryable }

// TooLargeError is an ErrTooLarge with its figures.
type TooLargeError struct {
	Bytes      int // of the request
	Operations int // in the request; 0 if CostsConnection is set
	Limit      int // Options.MaxPacket; the least size at which the servers end the connection, if CostsConnection is set

	CostsConnection bool // the error is an ErrCostsConnection, too
}

// Error says what Reason says, after the text of ErrTooLarge.
func (e *TooLargeError) Error() string { return fmt.Sprintf("%v: %s", ErrTooLarge, e.Reason()) }

// Reason names the request's size and the limit.
func (e *TooLargeError) Reason() string {
	if e.CostsConnection {
		return fmt.Sprintf("%d bytes, and %v when they get %d: their jute.maxbuffer is probably smaller, and Options.MaxPacket should be "+
			"1 KiB less than that", e.Bytes, ErrCostsConnection, e.Limit)
	}
	return fmt.Sprintf("%d bytes in %d operations, the limit is %d", e.Bytes, e.Operations, e.Limit)
}

// Unwrap returns ErrTooLarge, and ErrCostsConnection if it is one.
func (e *TooLargeError) Unwrap() []error {
	if e.CostsConnection {
		return []error{ErrTooLarge, ErrCostsConnection}
	}
	return []error{ErrTooLarge}
}

// MultiError is the error of a Multi of which an operation was refused. No operation of that Multi was done.
type MultiError struct {
	Index int   // of the refused operation, from 0
	Err   error // why the operation was refused
}

// Error names the operation's index and the reason.
func (e *MultiError) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *MultiError) Unwrap() error { return e.Err }
