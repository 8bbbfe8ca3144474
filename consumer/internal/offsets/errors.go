package offsets

import (
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/operr"
)

var (
	// ErrGroupInUse says that Kafka refused a commit because members of Kafka's own group protocol are in the group of this name,
	// or because a group of another kind has the name, such as a share group.
	ErrGroupInUse = errors.New("members of Kafka's own protocol are in the group")

	// ErrRecreated says that a topic was deleted and created again under the same name.
	ErrRecreated = errors.New("deleted and created again")

	// ErrElsewhere is the error of a commit that is not sent because the brokers are another cluster's now.
	ErrElsewhere = errors.New("the brokers are those of another cluster now")

	// ErrLost is the error of a commit that is not sent because its claim is lost.
	ErrLost = errors.New("the claim is lost")

	// ErrLate is the error when the last commit of a partition takes longer than LastCommitTimeout.
	ErrLate = fmt.Errorf("not committed within %v", LastCommitTimeout)

	// ErrEnded is the error of requests after the partition was closed, or the Committer has ended.
	ErrEnded = errors.New("consuming has ended")

	// ErrTooLarge says that Kafka refuses an offset for the size of its metadata. It does so again if the offset is repeated.
	ErrTooLarge = errors.New("the metadata are too large for Kafka")

	// ErrTextLost says that the metadata of a mark are lost because Kafka takes none of that size; the offset is not.
	ErrTextLost = errors.New("the metadata of the mark are too long, the offset is committed without them")

	// ErrRefused marks errors of a Store after which a repeated request would fail again.
	ErrRefused = errors.New("refused for good")

	// errOtherKind is the ErrGroupInUse of a group that takes no offsets. Its members may have left, and it stays until it is
	// deleted.
	errOtherKind = otherKindError{}

	// errOvertaken is the error of a commit that is not sent because the position has passed no message, and messages were handed
	// out meanwhile. No caller gets it.
	errNoAnswer = errors.New("the committer does not answer")

	errOvertaken = errors.New("messages were handed out meanwhile")

	// errWithdrawn is the error of a request that was not sent because one of its offsets must not be stored any more. The
	// others are sent again.
	errWithdrawn = errors.New("not sent, an offset in the request must not be stored any more")
)

type otherKindError struct{}

func (otherKindError) Error() string {
	return "Kafka has a share group of this name, or a group of another kind that takes no offsets"
}

func (otherKindError) Is(err error) bool { return err == ErrGroupInUse }

// refusedError makes an error an ErrRefused, and keeps its text.
type refusedError struct{ error }

func (e refusedError) Unwrap() error   { return e.error }
func (refusedError) Is(err error) bool { return err == ErrRefused }

// Fenced reports whether a commit was not sent because the claim, the topic or the cluster is not this member's any more.
func Fenced(err error) bool {
	return errors.Is(err, ErrLost) || errors.Is(err, ErrEnded) || errors.Is(err, ErrRecreated) || errors.Is(err, ErrElsewhere)
}

// refused reports whether a repeated commit would be refused, too.
func refused(err error) bool {
	return Fenced(err) || errors.Is(err, ErrGroupInUse) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrRefused)
}

// unanswered returns the error of a commit of t, or of all Trackers when t is nil, that Run has not answered.
func unanswered(t *Tracker, err error) error {
	if t == nil {
		return operr.New("consumer", "commit", "", err)
	}
	return operr.New("consumer", "commit", t.partition.String(), err)
}

// Recreated returns the error for a topic whose id has changed.
func Recreated(topic string) error {
	return operr.New("consumer", "", "", fmt.Errorf("topic %s was %w", topic, ErrRecreated))
}
