package inspect

import (
	"time"

	"github.com/kielgo/kiel/status"
)

// Version is the version of a Report's JSON. A field of one Version keeps its name, its unit and its meaning. New fields and new
// kinds of findings may come in the same Version.
const Version = 1

// Report is what a look at a group has found.
type Report struct {
	Version int       `json:"version"`
	Group   string    `json:"group"`
	At      time.Time `json:"at"`             // when the look ended
	Window  float64   `json:"window_seconds"` // between the two looks at Kafka; 0 for one look

	ZooKeeper Source   `json:"zookeeper"`
	Servers   []Server `json:"servers,omitempty"` // each ZooKeeper server by itself, with Options.Thorough
	Kafka     Source   `json:"kafka"`
	Chroot    string   `json:"chroot"`            // "/" if there is none
	Tree      string   `json:"tree,omitempty"`    // the id of the group's znode, as commits have it
	Cluster   string   `json:"cluster,omitempty"` // Kafka's id of its cluster

	Answers []Answer `json:"answers,omitempty"` // of the members, if they were asked

	Claims bool `json:"claims"` // whether the claims were read of all partitions in question; if not, owners are not known

	Members       []status.Member       `json:"members"`    // sorted by name
	Partitions    []Partition           `json:"partitions"` // sorted by topic and number
	Disagreements []status.Disagreement `json:"disagreements"`
	Findings      []Finding             `json:"findings"` // the worst first

	// Changes are what is different from the look before, in a Series alone. In its first look all members and claims are new.
	Changes []Change `json:"-"`
}

// Source says how a source has answered.
type Source struct {
	State  SourceState `json:"state"`
	Age    float64     `json:"age_seconds"`      // how old the answer was when the look ended
	Error  string      `json:"error,omitempty"`  // why the source did not answer
	Missed []string    `json:"missed,omitempty"` // what could not be seen there, at most statuswrite.MaxListed
}

// SourceState is a word of a fixed list.
type SourceState string

// The states of a source.
const (
	OK       SourceState = "ok"
	Failed   SourceState = "failed"
	NotAsked SourceState = "not-asked"
)

// Server is one server of ZooKeeper.
type Server struct {
	Address string `json:"address"`
	OK      bool   `json:"ok"` // it has accepted a session, and a quorum has acknowledged a transaction through it
	Error   string `json:"error,omitempty"`
}

// Partition is a partition of the group as all sources together know it.
type Partition struct {
	status.Partition
	Kafka *Offsets `json:"kafka,omitempty"` // nil if Kafka was not asked, or did not answer
	Fault Kind     `json:"fault,omitempty"` // of the Finding that its state and its offsets make; other findings may name it, too
}

// Offsets are what Kafka has about a partition of a group. An offset or a number that is not known is -1.
type Offsets struct {
	Committed int64      `json:"committed"`
	End       int64      `json:"end"`
	Waiting   int64      `json:"waiting"`                  // End - Committed; -1 if Committed is beyond End
	Oldest    *time.Time `json:"oldest_waiting,omitempty"` // the timestamp of the first message that waits
	Moved     int64      `json:"moved"`                    // by how much Committed has grown in the Window
	Written   int64      `json:"written"`                  // by how much End has grown in the Window
	Token     int64      `json:"token,omitempty"`          // the fencing token of the claim that has committed
	Tree      string     `json:"tree,omitempty"`           // the tree in which the commit was made
	Error     string     `json:"error,omitempty"`

	otherTopic bool // Committed is of a topic of this name that was deleted
}

// Finding is something that is wrong with a group, or that somebody who looks for a fault should know.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	// Objects are the partitions, members, topics or servers that it is about: at most statuswrite.MaxListed, and More besides.
	Objects []string   `json:"objects"`
	More    int        `json:"more,omitempty"`
	Member  string     `json:"member,omitempty"` // the member with which it goes wrong
	Text    string     `json:"text"`             // what is wrong
	Since   *time.Time `json:"since,omitempty"`  // since when; nil if no source knows it
	Waiting int64      `json:"waiting"`          // how many messages wait because of it; -1 if that is not known
	Do      string     `json:"do,omitempty"`
	Command string     `json:"command,omitempty"` // the command of kiel that mends it, or that shows more; it ends with Sources.Flags
	Runbook string     `json:"runbook,omitempty"` // the address of the runbook

	all []string // Objects and those besides
}

// Severity is how bad a Finding is.
type Severity string

// The severities.
const (
	Problem Severity = "problem" // messages wait, or may be handled twice, until somebody does something
	Note    Severity = "note"    // nothing has to be done
)

// Kind is a word of a fixed list, and the kind of a disagreement if the Finding is one of package status.
type Kind string

// The kinds of findings that are no disagreements.
const (
	ZooKeeperUnreachable Kind = "zookeeper-unreachable" // Objects are servers
	ZooKeeperRefused     Kind = "zookeeper-refused"     // ZooKeeper refuses the group's znodes to the user of this program
	ServerDown           Kind = "zookeeper-server-down" // Objects are servers
	KafkaUnreachable     Kind = "kafka-unreachable"     // Objects are brokers
	GroupRefused         Kind = "group-refused"         // Kafka refuses the group's offsets to the user of this program
	TopicRefused         Kind = "topic-refused"         // Objects are topics
	TopicMissing         Kind = "topic-missing"         // Objects are topics that Kafka does not have
	NoGroup              Kind = "no-group"              // the group has no znode here
	NoMembers            Kind = "no-members"
	NoOwner              Kind = "no-owner"         // Objects are partitions, planned for Member if that is known
	StandsStill          Kind = "stands-still"     // Objects are partitions of Member
	FallsBehind          Kind = "falls-behind"     // Objects are partitions of Member
	ProgressUnknown      Kind = "progress-unknown" // Objects are partitions of Member in which messages wait: nothing says whether it goes on
	OtherTree            Kind = "two-trees"        // Objects are partitions whose offsets were committed in another ZooKeeper tree
	NewerOwner           Kind = "newer-owner"      // Objects are partitions whose offsets a later owner has committed
	SiblingChroot        Kind = "sibling-chroot"   // Objects are chroots with a group of this name
	OffsetsUnknown       Kind = "offsets-unknown"  // Objects are partitions of which Kafka does not say how far they are
	OffsetAstray         Kind = "offset-astray"    // Objects are partitions of Member whose stored offset is beyond the end, or of a deleted topic
	ACLsDiffer           Kind = "acls-differ"      // Objects are znodes
	HandlerStuck         Kind = "handler-stuck"    // Objects are partitions of Member, which says so itself; likewise the next two
	HandlerFailing       Kind = "handler-failing"
	MemberTrouble        Kind = "member-trouble"
	MemberWent           Kind = "member-gone" // Objects are members
)
