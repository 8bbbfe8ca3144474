package consumer

import (
	"time"

	"github.com/kielgo/kiel/status"
)

// EventKind names what happened; its text is the one of the event log.
type EventKind string

// The events. Those from Joined to Left, without Opened, Message and Committed,
// are ownership's.
const (
	Joined    EventKind = "joined"    // the member znode stands
	Snapshot  EventKind = "snapshot"  // a new mapping was agreed on
	Claimed   EventKind = "claimed"   // a claim was acknowledged and verified
	Opened    EventKind = "opened"    // reading starts, at Offset
	Message   EventKind = "message"   // the message at Offset is about to be handed out, or to enter the channel of Messages
	Revoking  EventKind = "revoking"  // the handler is told to finish
	Committed EventKind = "committed" // Offset is stored; the next owner starts there
	Released  EventKind = "released"  // the claim is about to be deleted
	Lost      EventKind = "lost"      // the claim is gone, nothing may be committed
	Untrusted EventKind = "untrusted" // the session can't be proved alive since Since
	Left      EventKind = "left"      // the member has left
)

// Event is something that happened to this member. Fields that say nothing for
// a kind are zero.
type Event struct {
	Kind      EventKind
	Topic     string
	Partition int32  // -1 when the event is about no partition
	Token     int64  // the claim's fencing token
	Offset    int64  // of Opened, Message and Committed; -1 in the others
	Version   uint64 // of the snapshot that the member acts on
	Session   int64  // id of the ZooKeeper session; 0 in Opened, Message and Committed
	Err       error  // of Lost, Untrusted and Left: why

	// Since is, of Untrusted, when trust ended. Of Committed it is when it was last
	// found, before the answer came, that the offset may be stored: when the request was
	// written, or after that, at the write of another one.
	Since time.Time

	// Reason is why it happened, of the events that are ownership's, and none of Joined. Of Claimed and Revoking it is why the
	// partition comes and goes.
	Reason status.Reason
	// Previous is, of Claimed, the owner before, as far as this member knows, and "" when it does not. Next is, of Revoking, the
	// member to which the plan gives the partition, and "" when that is not known.
	Previous, Next string
}
