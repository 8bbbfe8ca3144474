package offsets

import (
	"errors"
	"fmt"
)

var (
	// ErrGroupInUse says that Kafka refused a commit because members of Kafka's own
	// group protocol are in the group of this name.
	ErrGroupInUse = errors.New("consumer: members of Kafka's own protocol are in this group")

	// ErrRecreated says that a topic was deleted and created again under the same name.
	ErrRecreated = errors.New("consumer: the topic was deleted and created again")

	// ErrLost refuses a commit of a claim that is not this member's any more.
	ErrLost = errors.New("consumer: the claim is lost")

	// ErrLate is why a partition is given up without its last commit.
	ErrLate = fmt.Errorf("consumer: not settled within %v", SettleTimeout)

	// ErrEnded answers what comes after the partition was closed, or the Committer has ended.
	ErrEnded = errors.New("consumer: consuming has ended")

	// ErrRefused is what a Store's errors are that repeating the request can't cure.
	ErrRefused = errors.New("consumer: refused for good")

	// errWithdrawn is why a request was not sent of which a part may not be
	// committed any more; the rest is sent again.
	errWithdrawn = errors.New("consumer: not sent, a claim in the request has ended")
)

// refusedError is an error that is ErrRefused too, with its text as it was.
type refusedError struct{ error }

func (e refusedError) Unwrap() error   { return e.error }
func (refusedError) Is(err error) bool { return err == ErrRefused }

// Fenced says whether a commit was not sent because it is not this member's to make.
func Fenced(err error) bool {
	return errors.Is(err, ErrLost) || errors.Is(err, ErrEnded) || errors.Is(err, ErrRecreated)
}

// refused says whether a commit will not be taken later either.
func refused(err error) bool {
	return Fenced(err) || errors.Is(err, ErrGroupInUse) || errors.Is(err, ErrRefused)
}

// Recreated returns the error for a topic that has another id than it had.
func Recreated(topic string) error { return fmt.Errorf("%w: %s", ErrRecreated, topic) }
