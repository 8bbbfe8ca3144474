package zktest

import "fmt"

// Error is an error code of ZooKeeper's wire protocol. [Server.Create], [Server.Set] and [Server.Delete] return it, and a hook
// may answer a request with it.
type Error int32

// The error codes with which this server answers, and some more for hooks.
const (
	ErrSystem               Error = -1
	ErrRuntimeInconsistency Error = -2 // in a refused multi: this operation comes after the one that failed
	ErrConnectionLoss       Error = -4
	ErrMarshalling          Error = -5
	ErrUnimplemented        Error = -6
	ErrOperationTimeout     Error = -7
	ErrBadArguments         Error = -8
	ErrUnknownSession       Error = -12
	ErrNoNode               Error = -101
	ErrNoAuth               Error = -102
	ErrBadVersion           Error = -103
	ErrNoChildren           Error = -108 // ephemeral znodes have no children
	ErrNodeExists           Error = -110
	ErrNotEmpty             Error = -111
	ErrSessionExpired       Error = -112
	ErrInvalidACL           Error = -114
	ErrAuthFailed           Error = -115
	ErrSessionMoved         Error = -118
	ErrNoWatcher            Error = -121
	ErrReconfigDisabled     Error = -123
	ErrThrottled            Error = -127
)

// Error returns the code's meaning.
func (e Error) Error() string {
	if text := errorText(e); text != "" {
		return "zktest: " + text
	}
	return fmt.Sprintf("zktest: error %d", int32(e))
}

// errorText returns the code's meaning, "" for a code that it does not know.
func errorText(e Error) string {
	switch e {
	case ErrSystem:
		return "system error"
	case ErrRuntimeInconsistency:
		return "runtime inconsistency"
	case ErrConnectionLoss:
		return "connection loss"
	case ErrMarshalling:
		return "marshalling error"
	case ErrUnimplemented:
		return "operation is not implemented"
	case ErrOperationTimeout:
		return "operation timeout"
	case ErrBadArguments:
		return "bad arguments"
	case ErrUnknownSession:
		return "unknown session"
	case ErrNoNode:
		return "no node"
	case ErrNoAuth:
		return "not authorized"
	case ErrBadVersion:
		return "bad version"
	case ErrNoChildren:
		return "ephemeral znodes have no children"
	case ErrNodeExists:
		return "node exists"
	case ErrNotEmpty:
		return "node has children"
	case ErrSessionExpired:
		return "session expired"
	case ErrInvalidACL:
		return "invalid acl"
	case ErrAuthFailed:
		return "authentication failed"
	case ErrSessionMoved:
		return "session moved"
	case ErrNoWatcher:
		return "no such watcher"
	case ErrReconfigDisabled:
		return "reconfiguration is disabled"
	case ErrThrottled:
		return "operation throttled"
	default:
		return ""
	}
}
