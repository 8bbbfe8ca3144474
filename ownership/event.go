package ownership

import (
	"fmt"
	"time"

	"github.com/kielgo/kiel/status"
)

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	// Joined: the member znode stands, for the first time in this ZooKeeper session.
	Joined EventKind = iota + 1
	// Snapshot: a new allocation is acted on.
	Snapshot
	// Claimed: the claim is acknowledged, the handler is about to start.
	Claimed
	// Revoking: the handler was told to finish.
	Revoking
	// Released: the handler has returned, the release is about to be sent.
	Released
	// Lost: the claim has gone, or is lost to a handler that did not return.
	Lost
	// Untrusted: the session can't be proved alive since Since; all claims of
	// this member are lost.
	Untrusted
	// Left: all is released, Run is about to return.
	Left
)

// String returns the kind in lower case, as event logs have it.
func (k EventKind) String() string {
	switch k {
	case Joined:
		return "joined"
	case Snapshot:
		return "snapshot"
	case Claimed:
		return "claimed"
	case Revoking:
		return "revoking"
	case Released:
		return "released"
	case Lost:
		return "lost"
	case Untrusted:
		return "untrusted"
	case Left:
		return "left"
	default:
		return fmt.Sprintf("event(%d)", int(k))
	}
}

// Event is one thing that happened. A partition is owned from [Claimed] to the
// first of [Released], [Lost], [Untrusted] and [Left]; per partition these
// alternate. Trust regained in the same ZooKeeper session is Claimed again with
// the same token.
type Event struct {
	Kind      EventKind
	Topic     string    // "" when the event is not about a partition
	Partition int32     // -1 when the event is not about a partition
	Token     int64     // of the claim; 0 when the event is not about a partition
	Version   uint64    // of the snapshot acted on
	Session   int64     // the ZooKeeper session; 0 when there is none
	Since     time.Time // of Untrusted: when trust ended, which may be long ago
	Err       error     // of Lost and Untrusted: why; of Left: what Run returns, except ErrStuck

	// Reason is why it happened, as status.Codes list. Of Joined it is none; of Claimed and Revoking it is why the partition came and goes.
	Reason status.Reason
	// Previous is, of Claimed, the owner before, as far as this member knows: the holder of a claim that was in the way, else what
	// its last snapshot had; itself when trust is regained in the same ZooKeeper session. "" when it is not known, as in the next
	// session, where another member may have owned the partition meanwhile.
	Previous string
	// Next is, of Revoking, the member to which the plan gives the partition, "" when that is not known. Both have at most
	// status.MaxShown bytes: names of others may be longer.
	Next string
}
