package consumer

import (
	"time"

	"github.com/kielgo/kiel/status"
)

// EventKind is the kind of an event, as in the event log.
type EventKind string

// The kinds of events. Opened, Message and Committed are this package's, all others are ownership's.
const (
	Joined    EventKind = "joined"    // the member znode was created
	Snapshot  EventKind = "snapshot"  // this member acts on a new mapping
	Claimed   EventKind = "claimed"   // a claim was acknowledged
	Opened    EventKind = "opened"    // reading starts, at Offset
	Message   EventKind = "message"   // the message at Offset is about to be handed out, or to enter the channel of Messages
	Revoking  EventKind = "revoking"  // the plan gives the partition to another member; the handler is to finish
	Committed EventKind = "committed" // Offset is stored; the next owner starts there
	Released  EventKind = "released"  // the claim is about to be deleted
	Lost      EventKind = "lost"      // the claim is gone, nothing may be committed
	Untrusted EventKind = "untrusted" // the session can't be proved alive since Since
	Left      EventKind = "left"      // the member has left
)

// Event is something that happened to this member. Fields that do not apply to the kind are zero.
type Event struct {
	Kind      EventKind
	Topic     string
	Partition int32  // -1 when the event is about no partition
	Token     int64  // the claim's fencing token
	Offset    int64  // the offset of Opened, Message and Committed; -1 in all other kinds
	Version   uint64 // the version of the snapshot that the member acts on
	Session   int64  // the id of the ZooKeeper session; 0 in Opened, Message and Committed
	Err       error  // the reason of Lost, Untrusted and Left

	// Since is when trust ended (Untrusted). In Committed it is the last time, before the answer came, at which the claim still
	// allowed to store the offset: the write of the request, or a later write of another request.
	Since time.Time

	// Reason is why an event of ownership happened; Joined has none. In Claimed and Revoking it is why the partition moves.
	Reason status.Reason
	// Previous is the owner before (Claimed), "" when this member does not know it.
	Previous string
	// Next is the member to which the plan gives the partition (Revoking), "" when that is not known.
	Next string
}
