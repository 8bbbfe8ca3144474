package status

import (
	"time"
)

// Version is the version of the model, the field "version" of its JSON.
const Version = 1

// Source says who describes the group.
type Source string

// The sources.
const (
	SourceMember    Source = "member"
	SourceZooKeeper Source = "zookeeper"
)

// Group describes a group.
type Group struct {
	Version int       `json:"version"`
	Group   string    `json:"group"`
	Source  Source    `json:"source"`
	At      time.Time `json:"at"` // when the source made the description

	// Self is the member that describes the group, nil from SourceZooKeeper.
	Self *Self `json:"self,omitempty"`
	// Mapping is the mapping in force; nil before the first, and from SourceZooKeeper.
	Mapping *Mapping `json:"mapping,omitempty"`

	Members    []Member    `json:"members"`    // sorted by name
	Partitions []Partition `json:"partitions"` // sorted by topic and number

	// Disagreements keep members from acting as one; among them are znodes that nobody should have created.
	Disagreements []Disagreement `json:"disagreements"`
	// Troubles are the kinds of errors that go on, and then those that went on lately; of each the newest first.
	Troubles []Trouble `json:"troubles"`
	// Changes are the last mappings, the newest first; none from SourceZooKeeper.
	Changes []Change `json:"changes"`
}

// Self is how a member describes itself.
type Self struct {
	Name    string  `json:"name"`
	Ready   bool    `json:"ready"`             // what /readyz answers
	Waiting string  `json:"waiting,omitempty"` // why it is not ready
	Session Session `json:"session"`
	// StuckHandlers are the partitions whose handlers did not return in time and still run.
	StuckHandlers []string `json:"stuck_handlers,omitempty"`
	Kafka         *Kafka   `json:"kafka,omitempty"` // nil unless the member is a consumer
}

// Session is a member's ZooKeeper session.
type Session struct {
	ID          string   `json:"id"`    // in hexadecimal digits, "0x0" when there is none
	State       string   `json:"state"` // the state in session.Stats
	Incarnation uint64   `json:"incarnation"`
	Timeout     float64  `json:"timeout_seconds"`
	TrustLeft   float64  `json:"trust_left_seconds"` // until trust ends unless the session is proved alive again; 0 when it has ended
	Expirations uint64   `json:"expirations"`
	Reconnects  uint64   `json:"reconnects"`
	Servers     []string `json:"servers"` // as host:port; all members of a group need those of one ensemble
	Chroot      string   `json:"chroot"`  // "/" if there is none; all members of a group need the same
}

// Kafka is a member's view of Kafka.
type Kafka struct {
	Reachable bool       `json:"reachable"`
	Since     *time.Time `json:"since,omitempty"` // when Reachable last changed; nil before the first answer
}

// Mapping is the mapping in force, as the described member computed it.
type Mapping struct {
	Version  uint64    `json:"version"` // the version of the member's snapshot
	At       time.Time `json:"at"`
	Function string    `json:"function"`
	Reason   Reason    `json:"reason"`
	// Hash is one of the partitions and the names of their owners, InputsHash one of the function's id and of all that it was
	// given: names, weights, zones and topics of members, partitions and their zones. Both are 12 hexadecimal digits. Members
	// with the same InputsHash and another Hash run functions of one id that give different results.
	Hash       string `json:"hash"`
	InputsHash string `json:"inputs_hash"`
}

// Member is one member of the group.
type Member struct {
	Name string `json:"name"`
	// Since is when its znode was created, by the servers' clock, and Session the ZooKeeper session that owns it, in hexadecimal
	// digits, "0x0" if the znode is persistent. A member reads neither of another one of this version: Inspect does.
	Since   *time.Time `json:"since,omitempty"`
	Session string     `json:"session,omitempty"`
	// Host and PID are the name of the host on which it runs and its process there, as it says. Inspect alone reads them.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// StatusAddr is where it answers /status, as it says; Inspect alone reads it, and leaves out what CheckAddr refuses.
	StatusAddr string   `json:"status_addr,omitempty"`
	Weight     int      `json:"weight,omitempty"` // 0 counts as 1
	Zone       string   `json:"zone,omitempty"`
	Cluster    string   `json:"cluster,omitempty"`   // the id of the Kafka cluster that it consumes; "" if its record names none
	Functions  []string `json:"functions,omitempty"` // the ids of its functions, the preferred first; none for a member without a record, such as a Python one
	Topics     []string `json:"topics,omitempty"`    // the topics that it asks for; an empty list asks for all
	Planned    int      `json:"planned"`             // how many partitions the mapping assigns to it; from SourceZooKeeper as for Partition.Planned
	Owned      *int     `json:"owned,omitempty"`     // how many partitions it owns; nil if the source does not know: a member knows its own number alone
}

// State is the state of a partition for the member that describes it.
type State string

// The states. SourceZooKeeper knows only Owned, Free, and Blocked when a persistent znode is in the claim's place. A member gives
// the state Elsewhere to the partitions that the mapping assigns to others.
const (
	Free      State = "free"      // no member owns it or, as far as the source knows, is about to
	Elsewhere State = "elsewhere" // the mapping assigns it to another member
	Claiming  State = "claiming"  // a claim request was sent, or is about to be
	Waiting   State = "waiting"   // another member's claim exists
	Opening   State = "opening"   // owned; the consumer prepares it
	Owned     State = "owned"     // owned, and its handler runs
	Resting   State = "resting"   // owned; its handler has returned too early and is called again after a pause
	Revoking  State = "revoking"  // owned; its handler was asked to finish
	Blocked   State = "blocked"   // it can't be claimed; WaitsFor says why
)

// Partition is one partition of the group.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	State     State  `json:"state"`
	// Planned is the member to which the mapping assigns it, "" for topics that no member asks for. From SourceZooKeeper it is
	// what the group's function gives for what was read, "" if that function is not of package allocfn.
	Planned string `json:"planned,omitempty"`
	// Owner is the member that holds the claim; a member knows only its own claims.
	Owner    string     `json:"owner,omitempty"`
	Since    *time.Time `json:"since,omitempty"`    // when it was claimed; from SourceZooKeeper by the servers' clock
	Token    int64      `json:"token,omitempty"`    // the fencing token
	Previous string     `json:"previous,omitempty"` // the owner before, "" if unknown; for a free partition the member that claimed it last
	Reason   *Reason    `json:"reason,omitempty"`   // why it came to its owner, or is planned for another
	Zone     string     `json:"zone,omitempty"`
	// WaitsFor says what the partition waits for, if it is planned for the member that describes it and its handler does not run,
	// or if its state can't be read.
	WaitsFor string `json:"waits_for,omitempty"`

	// Offsets are those of a consumer's own partitions. While one is not open, as one whose handler fails, Position is the
	// committed offset, at which it goes on, and End is 90 s old at most.
	Offsets *Offsets `json:"offsets,omitempty"`
	Times   *Times   `json:"times,omitempty"` // for a member's own partitions
}

// Offsets are a consumer's offsets in a partition. An offset that is not known is -1.
type Offsets struct {
	Position          int64   `json:"position"`                   // the offset of the next message that the handler gets
	Committed         int64   `json:"committed"`                  // the offset that this member has stored in Kafka, or found there
	Marked            int64   `json:"marked"`                     // the offset to be committed next
	Uncommitted       int64   `json:"uncommitted"`                // Position - Committed: what was handed out, and comes again to the next owner; 0 if the program keeps offsets itself
	End               int64   `json:"end"`                        // the end of what may be read
	Lag               int64   `json:"lag"`                        // End - Position
	LagSeconds        float64 `json:"lag_seconds"`                // age of the next message that the handler gets; 0 if none waits
	OldestUncommitted float64 `json:"oldest_uncommitted_seconds"` // age of the oldest mark that is not committed; 0 if there is none
	Stalled           float64 `json:"stalled_seconds"`            // how long the handler has neither taken nor marked a message, though it has one or one waits
	Paused            bool    `json:"paused,omitempty"`
	HeldBack          bool    `json:"held_back,omitempty"` // nothing is handed out because one message has not been marked for long
}

// Times say how long the steps to a partition's first message took, in seconds; a step that is not done yet has 0.
type Times struct {
	Settle       float64 `json:"settle_seconds,omitempty"`        // from the first change noticed to the mapping
	Claim        float64 `json:"claim_seconds,omitempty"`         // from the mapping to the claim
	Open         float64 `json:"open_seconds,omitempty"`          // from the claim to the start of reading
	FirstMessage float64 `json:"first_message_seconds,omitempty"` // from the start of reading to the first message handed out
}

// Disagreement is something that keeps members from acting as one.
type Disagreement struct {
	Kind DisagreementKind `json:"kind"`
	// Names are the members, topics, partitions or znodes that it is about: 20 at most, and More besides.
	Names []string `json:"names,omitempty"`
	More  int      `json:"more,omitempty"`
	Text  string   `json:"text"` // what the disagreement means, and what to do
}

// DisagreementKind is a word of a fixed list.
type DisagreementKind string

// The kinds of disagreements.
const (
	NoCommonFunction DisagreementKind = "no-common-function" // Names are members
	UnwantedTopic    DisagreementKind = "unwanted-topic"     // Names are topics
	TopicsIgnored    DisagreementKind = "topics-ignored"     // Names are members without a record: topics count for nobody
	UnreadableRecord DisagreementKind = "unreadable-record"  // Names are members
	PersistentMember DisagreementKind = "persistent-member"  // Names are members whose znodes no session owns
	OtherCluster     DisagreementKind = "other-cluster"      // Names are members that consume another Kafka cluster than the oldest that names one
	UnreadableSet    DisagreementKind = "unreadable-set"
	UnreadableZones  DisagreementKind = "unreadable-zones"
	OddItem          DisagreementKind = "odd-item"         // Names are items of the set that are not name:number
	PersistentClaim  DisagreementKind = "persistent-claim" // Names are partitions; a znode that no session owns is in the claim's place
	OrphanClaim      DisagreementKind = "orphan-claim"     // Names are partitions whose claim names no member, or whose session is no member's
	StrayClaim       DisagreementKind = "stray-claim"      // Names are claims of partitions that are not in the set
	UnreadableClaim  DisagreementKind = "unreadable-claim" // Names are partitions
	TwoTrees         DisagreementKind = "two-trees"        // Names are partitions whose offsets members of another ZooKeeper tree store
	NewerOwner       DisagreementKind = "newer-owner"      // Names are partitions whose offsets a later owner stores
)

// Trouble is something that goes wrong, or went wrong, for a while.
type Trouble struct {
	Kind  string     `json:"kind"`            // a fixed word, as in the log
	Since time.Time  `json:"since"`           // the first error
	Until *time.Time `json:"until,omitempty"` // when it recovered; nil while it goes on
	Count uint64     `json:"count"`           // the number of errors in that time
	Last  string     `json:"last"`            // the text of the newest error, cut to 500 bytes
	About []string   `json:"about,omitempty"` // the partitions, topics or brokers that have it now, 20 at most
}

// Change is one mapping that was applied.
type Change struct {
	Version     uint64    `json:"version"`
	At          time.Time `json:"at"`
	Reason      Reason    `json:"reason"`
	Joined      []string  `json:"joined,omitempty"` // members that joined, five at most of JoinedCount; Gone likewise
	Gone        []string  `json:"gone,omitempty"`
	JoinedCount int       `json:"joined_count"`
	GoneCount   int       `json:"gone_count"`
	Members     int       `json:"members"`
	Partitions  int       `json:"partitions"`
	Moved       int       `json:"moved"`        // partitions whose planned owner changed, of the whole group
	Given       int       `json:"given"`        // partitions that the mapping gives to this member, and did not before
	TakenAway   int       `json:"taken_away"`   // partitions that it gave to this member before, and does not any more
	Took        float64   `json:"took_seconds"` // from the first change noticed to the mapping
}
