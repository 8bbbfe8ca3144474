package consumer

import (
	"errors"
	"fmt"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/ownership"
)

var (
	// ErrBusy is returned by [Group.Consume] and [Group.Run] while another call of them runs on the same Group. A Group is one
	// member; make a second Group for a second one.
	ErrBusy = errors.New("this group is consuming already")

	// ErrTopicMismatch says that a partition was assigned to this member whose topic the member does not consume, by name or by
	// pattern. The member does not claim the partition, so nobody consumes it. That happens while members of Python kiel are in
	// the group, which know no topics, and with allocation functions that do not look at topics; package allocfn says which these
	// are, and a user's own may be one. In these cases give all members of the group the same topics.
	ErrTopicMismatch = errors.New("assigned a topic that this member does not consume")

	// ErrGroupInUse says that Kafka refused a commit because members of Kafka's own group protocol are in the group of this name.
	// They and this group's members would consume the same partitions, so no partition is opened until they have left. Stop them,
	// or use another group name. With Options.Fence the group does not notice them. It also says that Kafka has a share group of
	// this name (KIP-932), or a group of another kind that takes no offsets. Such a group stays when its members have left: use
	// another group name, or delete it (kafka-share-groups.sh --delete).
	ErrGroupInUse = offsets.ErrGroupInUse

	// ErrOtherCluster says that the group's members consume another Kafka cluster than this one, as brokers tell by the cluster's
	// id. With the same ZooKeeper and the same group name members of two clusters would each get a part of the partitions, and
	// read it in their own cluster only. So the oldest member that names a cluster decides, and a member with another id does not
	// join, or leaves again. The call ends; the next waits for 5 s before it joins. Give the members of one group the brokers of
	// one cluster. When a group moves to another cluster, stop all members first. The call also ends if the brokers answer with
	// another id than when the member joined. It is allocator's error.
	ErrOtherCluster = allocator.ErrOtherCluster

	// ErrHandler wraps the error or the panic of a handler that ended while its messages were open. It is the whole error when
	// the handler returned nil. Run returns it, as a *sarama.ConsumerError; with Options.ReopenPartition it goes to Errors, for
	// Consume too. A handler that returns because the call ends causes no error.
	ErrHandler = errors.New("the handler ended before its partition was revoked")

	// ErrRecreated says that a topic was deleted and created again under the same name. Its partitions are opened anew, at the
	// earliest message.
	ErrRecreated = offsets.ErrRecreated

	// ErrTopicMissing says that a topic which this member consumes is not in Kafka any more. It is reported once. The topic's
	// partitions wait until it is created again, which is logged. Meanwhile nothing else is reported about them.
	ErrTopicMissing = topics.ErrMissing

	// ErrTwoTrees says that members whose group is in another ZooKeeper tree, on other servers or under another chroot, store
	// offsets of partitions that this member owns: messages are handled twice. It goes to Errors as long as that lasts, at most
	// once a minute. Give all members of a group the same ensemble and chroot.
	ErrTwoTrees = reporting.ErrTwoTrees

	// ErrNewerOwner says that a later owner has stored the offset of a partition that this member is trusted to own, so that
	// messages are handled twice: somebody has deleted the claim, or has restored ZooKeeper from a backup. It goes to Errors as
	// long as that lasts, at most once a minute.
	ErrNewerOwner = reporting.ErrNewerOwner

	// ErrMetadataLost says that the metadata of a mark are longer than Kafka takes ([MaxMetadata]), so the offset is committed
	// without them. It goes to Errors once for each opening of a partition; the log counts all.
	ErrMetadataLost = offsets.ErrTextLost

	// ErrPlanDiffers says that a BalanceStrategy, of which [FromStrategy] has made an allocation function, has planned otherwise
	// for the same group. The members would disagree about who owns what, so the plan is not used.
	ErrPlanDiffers = errors.New("the strategy's plan is not the same for the same group")

	// ErrTopicInUse is returned by [Group.RemoveTopic] while a member asks for the topic by its name, or may. The text names the
	// member. It is allocator's error.
	ErrTopicInUse = allocator.ErrTopicInUse

	// ErrTopicNotInSet is returned by [Group.RemoveTopic] for a topic of which the group's set has no partition. It is
	// allocator's error.
	ErrTopicNotInSet = allocator.ErrTopicNotInSet

	// ErrUnreadable says that a record batch can't be decoded, because its checksum is wrong for instance, or that an answer with
	// it is larger than sarama.MaxResponseSize. The messages before it are handed out. The text names the first offset that can't
	// be read and the first one behind the batch, where another such batch may be, and says what to do. Until then the partition
	// is opened again every few seconds, and the batch alone is asked for. Messages before the batch that are not committed are
	// handed out again; in an eager session after 1 s, then 2, 4 and so on up to a minute, because the session ends with them.
	ErrUnreadable = fetch.ErrUnreadable

	// ErrOffsetReset says that Kafka does not have the position of a partition, or that an unclean leader election has truncated
	// the log below the position. The text says where the partition continues.
	ErrOffsetReset = errors.New("the log does not have the position")
)

// failure returns the error of an operation, as a user of this package sees it. op and object may be empty.
func failure(op, object string, err error) error { return operr.New("consumer", op, object, err) }

// stuck returns an ownership.ErrStuck that says what goes on.
func stuck(format string, args ...any) error {
	return failure("", "", operr.Mark(fmt.Errorf(format, args...), ownership.ErrStuck))
}

// notCommitted returns the error of the start position of a partition, of which the commit failed with err.
func notCommitted(p kiel.Partition, err error) error {
	return failure("commit the start position of", p.String(), err)
}

// outOfLog returns an ErrOffsetReset of a partition that can't be read at the offset start.
func outOfLog(p kiel.Partition, start int64, why error, then string, args ...any) error {
	reason := operr.Text(why)
	if e, ok := errors.AsType[interface {
		error
		Reason() string // of fetch's errors
	}](why); ok {
		reason = e.Reason()
	}
	text := errors.New(reason + fmt.Sprintf(then, args...))
	return failure("read", fmt.Sprintf("%s at %d", p, start), operr.Mark(text, ErrOffsetReset, why))
}
