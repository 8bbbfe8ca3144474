package allocator

import (
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/party"
)

// Errors of this package. Those that carry a cause wrap it.
var (
	// ErrNameTaken says that another session holds this member's name, or has replaced this member's znode. Run ends with it;
	// choose another name, or stop the other process. The error is party's.
	ErrNameTaken = party.ErrNameTaken

	// ErrNameHeld says that another session holds this member's name, perhaps that of this process before a crash. The text says
	// until when the member waits for that session to end; after that Run ends with ErrNameTaken. The error is party's.
	ErrNameHeld = party.ErrNameHeld

	// ErrOtherCluster says that the oldest member that names a cluster ([Options].Cluster) names another than this member, which
	// has not joined, or has left again. Run ends with it. The text has the member's name and both ids. Members that have died
	// count until their sessions have expired.
	ErrOtherCluster = errors.New("another cluster")

	// ErrFuncMismatch says that the members have no allocation function in common, or that the group runs one that this member
	// does not have. The text names who runs what. The last good mapping stays in force.
	ErrFuncMismatch = errors.New("no common allocation function")

	// ErrFuncFailed says that the allocation function returned an error or a wrong result, panicked, or took too long. The last
	// good mapping stays in force until members or partitions change, or Rebalance is called. Partitions that the new mapping
	// would have given to this member have no owner until then.
	ErrFuncFailed = errors.New("allocation function failed")

	// ErrBadRecord says that the record of a member could not be understood. The member counts as one without a record.
	ErrBadRecord = errors.New("bad record")

	// ErrUnwantedTopic says that the set holds partitions of topics for which no member asks: each has a record that names
	// topics, and not these. They are in no mapping, so nobody owns them, until a member that asks for them joins. The text names
	// the topics, or the first of many. Such topics harm nobody, so the error is not in [Snapshot].Err. Each member reports a
	// topic once, and again only if meanwhile a member asked for the topic or the topic was removed from the set. Nothing leaves
	// the set by itself; [PartitionAllocator.RemoveTopic] removes a topic that is not needed any more.
	ErrUnwantedTopic = errors.New("no member asks for topics in the set")

	// ErrSetUnreadable says that the znode of the group's set holds something other than a JSON array of strings. No member
	// writes over such data: somebody must repair or empty the znode. Meanwhile the last good set stays in force.
	ErrSetUnreadable = sharedset.ErrUnreadable

	// ErrSetTooLarge says that a change was not made because the set would not fit a packet. The text has the numbers of items
	// and bytes, and the limit.
	ErrSetTooLarge = sharedset.ErrTooLarge

	// ErrZonesUnreadable says that the data of the zones' znode can't be parsed, or that a newer program wrote them. Until
	// somebody repairs or deletes the znode, partitions count as having no zones, and no member writes the znode.
	ErrZonesUnreadable = zones.ErrUnreadable

	// ErrZonesTooLarge says that zones were not written because they would not fit one znode of 1 MiB, which has room for several
	// hundred thousand partitions.
	ErrZonesTooLarge = zones.ErrTooLarge

	// ErrZonesInvalid says that a given zone, topic or partition id is not allowed. Nothing was sent.
	ErrZonesInvalid = zones.ErrInvalid

	// ErrTopicInUse says that RemoveTopic removed nothing, because a member asks for the topic by its name, or may ask for it.
	// The text names the member.
	ErrTopicInUse = errors.New("in use")

	// ErrTopicNotInSet says that RemoveTopic found no partition of the topic in the set.
	ErrTopicNotInSet = errors.New("not in the set")

	// ErrNoGroup says that there is no group of the name given to Inspect: no member has ever joined it.
	ErrNoGroup = errors.New("no member has ever joined")

	// ErrCallback says that a callback panicked, or ended its goroutine. The calls after that one are made all the same.
	ErrCallback = errors.New("callback panicked or ended its goroutine")

	// ErrStuck says that Run returned before everything that it had started; the text names what still runs. A callback or an
	// allocation function that never returns leaves its goroutine behind, and is not called again. A membership that could not be
	// ended in time ends by itself, within a session timeout.
	ErrStuck = errors.New("still running")

	// ErrStopped says that the allocator has ended, or is about to.
	ErrStopped = errors.New("stopped")
)

// pkg is this package's name in errors.
const pkg = "allocator"

// failed returns the error of an operation, as a user of this package sees it. op and object may be empty.
func failed(op, object string, err error) error { return operr.New(pkg, op, object, err) }

// failedAll returns the errors as one, nil if there is none.
func failedAll(errs []error) error {
	if err := errors.Join(errs...); err != nil {
		return failed("", "", err)
	}
	return nil
}

// funcFailed returns an ErrFuncFailed without another cause.
func funcFailed(format string, args ...any) error {
	return operr.Mark(fmt.Errorf("allocation function "+format, args...), ErrFuncFailed)
}

// funcFailedWith returns an ErrFuncFailed with the cause that allocfn.Call has returned, which names the function.
func funcFailedWith(err error) error { return operr.Mark(err, ErrFuncFailed) }
