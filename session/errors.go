package session

import (
	"context"
	"errors"
	"fmt"
)

// The errors of this package. They arrive wrapped with the operation and the path; test for them with errors.Is.
var (
	// ErrNoNode says that the znode is not there. ClassFatal: the same call fails again until somebody creates it.
	ErrNoNode = errors.New("session: no such znode")
	// ErrNodeExists says that the znode to be created is there already, be it ours or another's: look at its
	// EphemeralOwner. ClassFatal.
	ErrNodeExists = errors.New("session: znode exists")
	// ErrBadVersion says that the znode has another version than the one given: read it again. ClassFatal.
	ErrBadVersion = errors.New("session: version conflict")
	// ErrNotEmpty says that a znode with children can't be deleted. ClassFatal.
	ErrNotEmpty = errors.New("session: znode has children")
	// ErrNoAuth says that the znode's ACL denies this to us. ClassFatal.
	ErrNoAuth = errors.New("session: not allowed by the acl")
	// ErrInvalidACL says that the server does not accept the ACL, for instance an auth-scheme ACL on a connection
	// that has not authenticated. ClassFatal.
	ErrInvalidACL = errors.New("session: invalid acl")
	// ErrAuthFailed says that the credentials were refused, or that they do not open Options.CheckPath, before they ever
	// did. ClassFatal.
	ErrAuthFailed = errors.New("session: authentication failed")
	// ErrEphemeralParent says that an ephemeral znode can't have children. ClassFatal.
	ErrEphemeralParent = errors.New("session: ephemeral znodes have no children")
	// ErrQuotaExceeded says that the server enforces a quota that this would exceed. ClassFatal.
	ErrQuotaExceeded = errors.New("session: quota exceeded")
	// ErrSessionExpired says that the ZooKeeper session of this incarnation is over; its ephemeral znodes are gone or
	// about to go. ClassRetryable: with the next incarnation.
	ErrSessionExpired = errors.New("session: zookeeper session is over")
	// ErrTrustLost is the cause of an incarnation that could not prove its ZooKeeper session alive in time. The
	// session may live on. ClassRetryable: with the next incarnation.
	ErrTrustLost = errors.New("session: trust lost")
	// ErrUncertain says that a write has no known outcome: its reply was lost, or the caller gave up. It may have
	// happened, and may still happen until the ZooKeeper session ends. ClassUncertain: after a Sync look at what is
	// there before repeating anything.
	ErrUncertain = errors.New("session: outcome unknown")
	// ErrBusy says that the server refused to take the request, because it is throttling or was not the leader's any
	// more. Nothing was done. ClassRetryable.
	ErrBusy = errors.New("session: server busy")
	// ErrServer is an error answer that has no sentinel of its own; the message has the server's code. ClassFatal.
	ErrServer = errors.New("session: server error")
	// ErrRolledBack is the error of an operation in a Multi of which another operation was refused. ClassFatal.
	ErrRolledBack = errors.New("session: rolled back with its multi")
	// ErrClosed says that the Session is closed, by Close or the end of Run's context, or is about to be. ClassFatal.
	ErrClosed = errors.New("session: closed")
	// ErrTooLarge says that a request is larger than Options.MaxPacket; nothing was sent. ClassFatal.
	ErrTooLarge = errors.New("session: request too large")
	// ErrEphemeralBudget says that the paths of this session's ephemeral znodes would take more than
	// Options.EphemeralBudget bytes; nothing was sent. ClassFatal.
	ErrEphemeralBudget = errors.New("session: budget of ephemeral znodes used up")
	// ErrInvalidName is wrapped by the errors of CheckGroup, CheckTopic and CheckMember. ClassFatal.
	ErrInvalidName = errors.New("session: invalid name")
	// ErrInvalidPath is wrapped by the errors of CheckPath and of every call that is given such a path. ClassFatal.
	ErrInvalidPath = errors.New("session: invalid path")
)

// Class says what a caller can do about an error.
type Class int

// The classes of errors.
const (
	// ClassNone is the class of nil.
	ClassNone Class = iota
	// ClassRetryable: nothing was done; the call may be made again, on the next incarnation when this one is over.
	ClassRetryable
	// ClassUncertain: it may have been done, and may still happen; look before repeating it.
	ClassUncertain
	// ClassFatal: the same call would fail again, or the caller itself ended it.
	ClassFatal
)

// String returns "none", "retryable", "uncertain" or "fatal".
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
	default:
		return fmt.Sprintf("class %d", int(c))
	}
}

// Classify returns the class of an error of this package, however it is wrapped. An error that is uncertain and
// something else besides (the session ended, the caller's context did) is uncertain: that is what must be acted on.
// A context's own error is fatal, because the caller asked for the end; so is any error not of this package.
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
	default:
		return ClassFatal
	}
}

// Retryable reports whether Classify(err) is ClassRetryable.
func Retryable(err error) bool { return Classify(err) == ClassRetryable }

// MultiError is the error of a Multi that was refused: nothing of it was done.
type MultiError struct {
	Index int   // which operation was refused, from 0
	Err   error // why
}

// Error names the operation's index and the reason.
func (e *MultiError) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *MultiError) Unwrap() error { return e.Err }
