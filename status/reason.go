package status

import (
	"fmt"
	"log/slog"
	"strings"
)

// Code says why something happened, in a fixed list of words of at most 64 bytes.
type Code string

// The codes. [Reason].Names has the members, topics or functions that a code is about.
const (
	Started         Code = "started"          // this member has computed its first mapping since it joined
	MemberJoined    Code = "member-joined"    // Names are members
	MemberGone      Code = "member-gone"      // Names are members that left or expired; the code does not say which
	MemberLeft      Code = "member-left"      // Names are members whose claims still existed when their member znodes were gone
	MemberChanged   Code = "member-changed"   // Names are members that joined again in one step, with the same topics, weight and zone
	TopicAdded      Code = "topic-added"      // Names are topics, new in the set
	TopicGrew       Code = "topic-grew"       // Names are topics that got partitions
	TopicRemoved    Code = "topic-removed"    // Names are topics that left the set, or got fewer partitions
	TopicsChanged   Code = "topics-changed"   // Names are members that ask for other topics
	FunctionChanged Code = "function-changed" // Names are the function before and the one after
	WeightsChanged  Code = "weights-changed"  // Names are members
	ZonesChanged    Code = "zones-changed"    // Names are members in another zone; none when partitions are
	SessionLost     Code = "session-lost"     // trust in the ZooKeeper session had ended
	Stopped         Code = "stopped"          // the member was asked to leave
	Stuck           Code = "stuck"            // a handler did not return in time
	ClaimVanished   Code = "claim-vanished"   // a third party changed the znodes of the claim
	Manual          Code = "manual"           // Rebalance was called
	Unchanged       Code = "unchanged"        // the mapping's inputs are as before, because a change was undone or does not affect them
	Unknown         Code = "unknown"          // a member of an earlier version wrote no reason, or the reason can't be read
)

// Codes returns all codes, in the order above.
func Codes() []Code {
	return []Code{
		Started, MemberJoined, MemberGone, MemberLeft, MemberChanged, TopicAdded, TopicGrew, TopicRemoved, TopicsChanged,
		FunctionChanged, WeightsChanged, ZonesChanged, SessionLost, Stopped, Stuck, ClaimVanished, Manual, Unchanged, Unknown,
	}
}

// Cause is the kind of change that a [Code] is about. The label cause of kiel_rebalances_total has these values.
type Cause string

// The causes.
const (
	CauseInitial    Cause = "initial"    // a member computed its first mapping
	CauseManual     Cause = "manual"     // somebody called Rebalance, or changed the znodes of a claim by hand
	CauseSession    Cause = "session"    // trust in the ZooKeeper session had ended
	CauseMembers    Cause = "members"    // members came, went, changed, or did not do what they had to
	CausePartitions Cause = "partitions" // the set changed
	CauseZones      Cause = "zones"      // the zones of members or of partitions changed
)

// Causes returns all causes, in the order above.
func Causes() []Cause {
	return []Cause{CauseInitial, CauseManual, CauseSession, CauseMembers, CausePartitions, CauseZones}
}

// Cause returns the cause of a code: "" for [Unknown], and for a code that is not among [Codes]. For [Unchanged], which has lost
// its cause, it returns the most frequent one: the set was written, but the same partitions are divided.
func (c Code) Cause() Cause {
	switch c {
	case Started:
		return CauseInitial
	case Manual, ClaimVanished:
		return CauseManual
	case SessionLost:
		return CauseSession
	case MemberJoined, MemberGone, MemberLeft, MemberChanged, TopicsChanged, FunctionChanged, WeightsChanged, Stopped, Stuck:
		return CauseMembers
	case TopicAdded, TopicGrew, TopicRemoved, Unchanged:
		return CausePartitions
	case ZonesChanged:
		return CauseZones
	default:
		return ""
	}
}

// Reason is why something happened: a code, and the members, topics or functions that it is about. The zero Reason means that
// there is none.
type Reason struct {
	Code Code `json:"code"`
	// Names are five at most, sorted unless the code says otherwise, each of 64 bytes at most.
	Names []string `json:"names,omitempty"`
	// More is how many further names there were.
	More int `json:"more,omitempty"`
}

// IsZero reports whether there is no reason.
func (r Reason) IsZero() bool { return r.Code == "" }

// String returns the code and the names, as logs show them: "member-joined b, c and 3 more".
func (r Reason) String() string {
	if len(r.Names) == 0 {
		return string(r.Code)
	}
	s := string(r.Code) + " " + strings.Join(r.Names, ", ")
	if r.More > 0 {
		s += fmt.Sprintf(" and %d more", r.More)
	}
	return s
}

// LogValue returns the text of String.
func (r Reason) LogValue() slog.Value { return slog.StringValue(r.String()) }
