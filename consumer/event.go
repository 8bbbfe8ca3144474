package consumer

import "github.com/kielgo/kiel/ownership"

// EventKind is the kind of an event, as in event logs.
type EventKind = ownership.EventKind

// The kinds of events. Opened, Message and Committed are this package's, all others are ownership's.
const (
	Joined    = ownership.Joined       // the member znode was created
	Snapshot  = ownership.Snapshot     // this member acts on a new mapping
	Claimed   = ownership.Claimed      // a claim was acknowledged
	Opened    = EventKind("opened")    // reading starts, at Offset
	Message   = EventKind("message")   // the message at Offset is about to be handed out, or to enter the channel of Messages
	Revoking  = ownership.Revoking     // the plan gives the partition to another member; the handler is to finish
	Committed = EventKind("committed") // Offset is stored; the next owner starts there
	Releasing = ownership.Releasing    // the claim is about to be deleted
	Lost      = ownership.Lost         // the claim is gone, nothing may be committed
	Untrusted = ownership.Untrusted    // the session can't be proved alive since Since
	Left      = ownership.Left         // the member has left
)

// Event is something that happened to this member: ownership's event, or one of this package with an Offset.
type Event = ownership.Event
