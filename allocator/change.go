package allocator

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Move is how a partition came to the member to which the mapping gives it, as far as this member saw it.
type Move struct {
	// Version and At are those of the snapshot that gave the partition to the member.
	Version uint64
	At      time.Time
	// From is the member to which the mapping before gave the partition; "" if there was none, or it is not known.
	From string
	// Reason is why the partition moved.
	Reason status.Reason
	// Took is the time from the first change that this member noticed to the snapshot.
	Took time.Duration
}

// Move returns how p came to the member to which the mapping gives it, with this snapshot or with an earlier one. It does not
// matter whether the program has read that snapshot. Move returns false if the mapping gives p to nobody.
func (s *Snapshot) Move(p kiel.Partition) (Move, bool) {
	i, ok := s.mapping.index(p)
	if !ok || len(s.mapping.moves) == 0 {
		return Move{}, false
	}
	m := s.mapping.moves[i]
	return Move{m.change.version, m.change.at, m.from, m.reason, m.change.took}, true
}

// move is how a partition came to its owner. Partitions that have moved for the same reason from the same member share a move.
type move struct {
	change *change
	from   string
	reason status.Reason
}

// change is how a mapping differs from the mapping before. Moves keep it for long, so it has no long lists.
type change struct {
	version uint64        // the version of the first snapshot with the mapping; set when that is published, as are at and took
	at      time.Time     // when that snapshot was made
	took    time.Duration // the time from the first change that was noticed to that snapshot

	reason              status.Reason
	joined, gone        someNames
	members, partitions int // how many there are now
	moved               int // partitions whose planned member differs from the mapping before; "none" counts as a member
	given, takenAway    int // partitions that this member got or lost
}

// occasion is what a computation rested on besides the inputs of the allocation function.
type occasion struct {
	self   string               // this member's name
	joined bool                 // whether this member had joined
	inc    *session.Incarnation // the incarnation under which everything was read
	zones  uint64               // the version of the zones
	manual bool                 // whether Rebalance was called
}

// someNames holds the first names of a list, cut to the limits of a status.Reason, and counts all of them.
type someNames struct {
	names []string
	count int
}

func (n *someNames) add(name string) {
	if n.count++; n.count <= statuswrite.MaxNames {
		n.names = append(n.names, statuswrite.ShortName(name))
	}
}

// LogValue returns the names, and how many more there are.
func (n *someNames) LogValue() slog.Value {
	text := strings.Join(n.names, ", ")
	if more := n.count - len(n.names); more > 0 {
		text = fmt.Sprintf("%s and %d more", text, more)
	}
	return slog.StringValue(text)
}

func (n *someNames) reason(code status.Code) status.Reason {
	return status.Reason{Code: code, Names: n.names, More: n.count - len(n.names)}
}

// comparison finds how a mapping differs from the mapping before.
type comparison struct {
	before, now *mapping

	joined, gone someNames
	rejoined     []someNames // members that joined again with another record, for each of recordReasons

	nowOf   []int32 // for each member before, its index now, -1 if it is gone
	arrived []bool  // for each member now, whether it has joined

	added, grew, removed []string // topics of the set that are new, have more partitions, or have fewer; sorted

	change    *change
	alike     []*move            // moves by the index of the member before, plus one; index 0 is for partitions that had no owner
	toArrived map[[2]int32]*move // moves to members that have joined, by the members before and now
	newcomer  *move              // the move of new partitions of the topic ofTopic, the last one seen
	ofTopic   string
}

// follow finds how m, which was computed on this occasion, differs from the mapping before.
func (m *mapping) follow(before *mapping, on occasion) {
	m.occasion = on
	m.change = &change{members: len(m.members), partitions: len(m.in.Partitions)}
	c := &comparison{
		before: before, now: m, change: m.change, rejoined: make([]someNames, len(recordReasons())),
		alike: make([]*move, len(before.members)+1), toArrived: make(map[[2]int32]*move),
	}
	if before.change != nil {
		c.compareMembers()
		c.compareSets()
		m.change.joined, m.change.gone = c.joined, c.gone
	}
	m.change.reason = c.reason()
	c.findMoves()
}

// compareMembers finds the members that have joined, are gone, or have joined again. Both lists of members are sorted.
func (c *comparison) compareMembers() {
	was, is := c.before.inputs, c.now.inputs
	c.nowOf, c.arrived = make([]int32, len(was.members)), make([]bool, len(is.members))
	i, k := 0, 0
	for i < len(was.members) || k < len(is.members) {
		switch order := compareNames(was.members[i:], is.members[k:]); {
		case order < 0:
			c.gone.add(was.members[i].Name)
			c.nowOf[i] = -1
			i++
		case order > 0:
			c.joined.add(is.members[k].Name)
			c.arrived[k] = true
			k++
		default:
			c.nowOf[i] = int32(k)
			if !sameMember(was.members[i], is.members[k]) {
				c.compareRecords(&was.read[i], &is.read[k])
			}
			i, k = i+1, k+1
		}
	}
}

// compareNames compares the first names of two sorted lists of members. One list may be empty: then the other one's name is less.
func compareNames(a, b []party.Member) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	default:
		return strings.Compare(a[0].Name, b[0].Name)
	}
}

// recordReason is a reason code for a member that has joined again with another record.
type recordReason struct {
	code    status.Code
	differs func(was, is *member) bool
}

// recordReasons returns the codes in the order in which they count: of several differences the first one is the reason.
func recordReasons() []recordReason {
	return []recordReason{
		{status.TopicsChanged, func(was, is *member) bool { return !slices.Equal(was.asksFor(), is.asksFor()) }},
		{status.WeightsChanged, func(was, is *member) bool { return max(was.Weight, 1) != max(is.Weight, 1) }},
		{status.ZonesChanged, func(was, is *member) bool { return was.Zone != is.Zone }},
		{status.MemberChanged, func(_, _ *member) bool { return true }},
	}
}

// compareRecords finds what has changed in the record of a member that has joined again.
func (c *comparison) compareRecords(was, is *member) {
	i := slices.IndexFunc(recordReasons(), func(r recordReason) bool { return r.differs(was, is) })
	c.rejoined[i].add(is.Name)
}

// compareSets finds the topics that were added to the set, got partitions in it, or lost some.
func (c *comparison) compareSets() {
	was, is := c.before.inputs.items, c.now.inputs.items
	if sameSlice(was, is) {
		return
	}
	for _, topic := range topicsOfItems(missing(is, was)) {
		if hasTopic(was, topic) {
			c.grew = append(c.grew, topic)
		} else {
			c.added = append(c.added, topic)
		}
	}
	c.removed = topicsOfItems(missing(was, is))
}

// sameSlice reports whether two slices share their elements. Views with equal contents share slices, and no slice of a view
// changes.
func sameSlice[E any](a, b []E) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// topicsOfItems returns the topics of items of a set, each once, sorted.
func topicsOfItems(items []string) (topics []string) {
	for _, item := range items {
		if p, err := kiel.ParsePartition(item); err == nil && (len(topics) == 0 || topics[len(topics)-1] != p.Topic) {
			topics = append(topics, p.Topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// hasTopic reports whether the sorted items have one of the topic.
func hasTopic(items []string, topic string) bool {
	prefix := topic + ":"
	i, _ := slices.BinarySearch(items, prefix)
	return i < len(items) && strings.HasPrefix(items[i], prefix)
}

// reason returns why there is a new mapping. Of several reasons it returns the first in the order of the cases below.
func (c *comparison) reason() status.Reason {
	was, is := c.before, c.now
	if was.change == nil {
		return statuswrite.Reason(status.Started)
	}
	if was.occasion.inc != is.occasion.inc {
		return statuswrite.Reason(status.SessionLost)
	}
	if was.fn != is.fn {
		return statuswrite.Reason(status.FunctionChanged, was.fn, is.fn)
	}
	if c.gone.count == 1 && c.gone.names[0] == statuswrite.ShortName(is.occasion.self) {
		return statuswrite.Reason(status.Stopped) // for the other members it is MemberGone
	}
	switch {
	case c.gone.count > 0:
		return c.gone.reason(status.MemberGone)
	case c.joined.count > 0:
		return c.joined.reason(status.MemberJoined)
	}
	for i, r := range recordReasons() {
		if c.rejoined[i].count > 0 {
			return c.rejoined[i].reason(r.code)
		}
	}
	switch {
	case len(c.added) > 0:
		return statuswrite.Reason(status.TopicAdded, c.added...)
	case len(c.grew) > 0:
		return statuswrite.Reason(status.TopicGrew, c.grew...)
	case len(c.removed) > 0:
		return statuswrite.Reason(status.TopicRemoved, c.removed...)
	case was.occasion.zones != is.occasion.zones && !maps.Equal(was.in.Zones, is.in.Zones):
		return statuswrite.Reason(status.ZonesChanged)
	case is.occasion.manual:
		return statuswrite.Reason(status.Manual)
	default:
		return statuswrite.Reason(status.Unchanged)
	}
}
