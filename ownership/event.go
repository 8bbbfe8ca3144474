package ownership

import (
	"time"

	"github.com/kielgo/kiel/status"
)

// EventKind says what happened. Its words are those of event logs.
type EventKind string

// The kinds of events. Package consumer has more.
const (
	// Joined: the member znode exists, for the first time in this ZooKeeper session.
	Joined EventKind = "joined"
	// Snapshot: a new allocation is acted on.
	Snapshot EventKind = "snapshot"
	// Claimed: the claim is acknowledged, the handler is about to start.
	Claimed EventKind = "claimed"
	// Revoking: the handler was asked to finish.
	Revoking EventKind = "revoking"
	// Releasing: the handler has returned, the release is about to be sent.
	Releasing EventKind = "releasing"
	// Lost: the claim has gone, or is lost to a handler that did not return.
	Lost EventKind = "lost"
	// Untrusted: the session can't be proved alive since Since; all claims of this member are lost.
	Untrusted EventKind = "untrusted"
	// Left: all is released, Run is about to return.
	Left EventKind = "left"
)

// Event is one thing that happened. A partition is owned from [Claimed] to the first of [Releasing], [Lost], [Untrusted] and
// [Left]; per partition these alternate. Trust regained in the same ZooKeeper session is Claimed again with the same token.
// Fields that do not apply to the kind are zero.
type Event struct {
	Kind      EventKind
	Topic     string // "" when the event is not about a partition
	Partition int32  // -1 when the event is not about a partition
	Token     int64  // the claim's fencing token
	Offset    int64  // of the events that package consumer adds; -1 in all of this package
	Version   uint64 // of the snapshot acted on
	Session   int64  // the ZooKeeper session; 0 when there is none, and in the events that package consumer adds
	Err       error  // of Lost and Untrusted: why; of Left: what Run returns, except ErrStuck

	// Since is when trust ended, which may be long ago (Untrusted). In consumer.Committed it is the last time, before the answer
	// came, at which the claim still allowed to store the offset: the write of the request, or a later write of another request.
	Since time.Time

	// Reason is why it happened, as status.Codes list. Claimed has why the partition comes, Revoking why it goes, and Joined
	// none.
	Reason status.Reason
	// Previous is the owner before, as far as this member knows; only Claimed has it. It is the holder of a claim that was in the
	// way, else the one that this member's last snapshot named; this member itself when trust is regained in the same ZooKeeper
	// session. "" says that it is not known, as in the next session, where another member may have owned the partition meanwhile.
	Previous string
	// Next is the member to which the plan gives the partition; "" when that is not known. Only Revoking has it. Previous and
	// Next have at most 256 bytes: names of others may be longer.
	Next string
}
