package allocator

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Trigger says what a snapshot was made for.
type Trigger string

// Triggers. When several things changed, the first in this order is named.
const (
	TriggerInitial    Trigger = "initial"    // the first one
	TriggerManual     Trigger = "manual"     // Rebalance was called
	TriggerSession    Trigger = "session"    // the session was lost, or another incarnation began
	TriggerMembers    Trigger = "members"    // members came, went or changed; this one left
	TriggerPartitions Trigger = "partitions" // the set changed
	TriggerZones      Trigger = "zones"      // the zones of partitions changed
)

// triggers returns all in order.
func triggers() []Trigger {
	return []Trigger{TriggerInitial, TriggerManual, TriggerSession, TriggerMembers, TriggerPartitions, TriggerZones}
}

// Snapshot is one state of the group as this member sees it: the mapping that
// is in force, and what it was made of. It never changes; its slices and its map
// must not be changed either. Its methods don't block and may be called from anywhere.
// The first call of Owner or Share makes an index of the mapping, which takes one
// pass over the partitions, as each call of Mapping does; snapshots with the same
// mapping share the index.
type Snapshot struct {
	// Version grows by one with each snapshot of this allocator, from 1.
	Version uint64
	// Trigger is why this snapshot was made.
	Trigger Trigger
	// Reason is why the mapping is another than the one before it, with names of members, topics or functions. Snapshots with
	// the same mapping have the same. It is zero before the first mapping. [Snapshot.Move] has the reasons of single partitions.
	Reason status.Reason
	// At is when.
	At time.Time

	// Members and Partitions are what the mapping was computed for, in kiel's
	// order. Partitions are those of the set without those of Unwanted topics.
	// While Err says that a mapping could not be computed, these three are those of
	// the last good one.
	Members    []string
	Partitions []kiel.Partition
	// Unwanted are the topics in the set for which no member asks, sorted byte by
	// byte: nobody owns their partitions ([ErrUnwantedTopic]). It is empty while a
	// member asks for all topics or has no record. Names are as they stand in the
	// set, where somebody may have written any text.
	Unwanted []string
	// Zones says for which partitions, in the set or not, the mapping was computed
	// with which zone. It has none while the znode can't be read.
	Zones map[kiel.Partition]string
	// Func is the ID of the function that computed the mapping, "" when there
	// is no mapping yet.
	Func string

	// Joined says that this member takes part: its znode stood, of this session,
	// when the members were read, and the session was trusted when the snapshot
	// was made. When it is false the own share is empty. A snapshot that is not
	// joined while its Incarnation still lives means that we have left the group;
	// with an Incarnation that has ended it means that nothing can be said until
	// the next one.
	Joined bool
	// Incarnation is the one under which members, set and zones were read, always
	// all under the same. Act on a snapshot only while it is trusted. It is nil only
	// when Run ended before anything was read.
	Incarnation *session.Incarnation

	// Err is what is wrong, nil when nothing is: [ErrFuncFailed],
	// [ErrFuncMismatch], sharedset's errors, items that are not name:number
	// ([kiel.ErrInvalidPartition]), [ErrZonesUnreadable], the cause for which the session is not trusted,
	// [ErrNameHeld], [ErrNameTaken]. Several are joined.
	Err error

	mapping *mapping // never nil
	mine    []kiel.Partition
}

// mapping is what a computation came to; snapshots share it.
type mapping struct {
	in    allocfn.Input
	fn    string
	owner allocfn.Assignment

	unwanted []string // topics that no member asks for, sorted
	leftOut  int      // how many partitions they have

	inputs   *inputs // in was made of them
	occasion occasion
	change   *change // from the mapping before; nil before the first
	moves    []*move // how each partition came to its owner
	mine     int     // how many this member has

	members []string
	view    func() *allocfn.View // made when first asked for
}

func newMapping(in allocfn.Input, fn string, owner allocfn.Assignment) *mapping {
	m := &mapping{in: in, fn: fn, owner: owner, members: make([]string, len(in.Members))}
	for i := range in.Members {
		m.members[i] = in.Members[i].Name
	}
	m.view = sync.OnceValue(func() *allocfn.View {
		v, _ := allocfn.NewView(in, owner) // allocfn.Call has checked owner
		return v
	})
	return m
}

// topics returns what a member, by its index, owns, in kiel's shape.
func (m *mapping) topics(member int) map[string][]int32 {
	all := make(map[string][]int32)
	for topic, indices := range m.view().Topics(member) {
		ids := slices.Grow(all[topic], len(indices))
		for _, i := range indices {
			ids = append(ids, m.in.Partitions[i].ID)
		}
		all[topic] = ids
	}
	return all
}

// share returns what the named member owns, in kiel's order.
func (m *mapping) share(name string) []kiel.Partition {
	i, ok := slices.BinarySearch(m.members, name)
	if !ok {
		return nil
	}
	var share []kiel.Partition
	for k, owner := range m.owner {
		if int(owner) == i {
			share = append(share, m.in.Partitions[k])
		}
	}
	return share
}

// Mine returns what this member owns, in kiel's order; nothing when it is not
// joined. The slice is the caller's.
func (s *Snapshot) Mine() []kiel.Partition { return slices.Clone(s.mine) }

// Share returns what the mapping gives to the named member, as topic and ids
// in kiel's order: kiel's shape of an allocation. It is empty, not nil, when
// that is nothing or there is no such member. The map is the caller's.
func (s *Snapshot) Share(member string) map[string][]int32 {
	i, ok := slices.BinarySearch(s.mapping.members, member)
	if !ok {
		return map[string][]int32{}
	}
	return s.mapping.topics(i)
}

// Owner returns the member to whom the mapping gives p, and false when p is
// not in Partitions: it is not in the set, or no member asks for its topic. The
// mapping may give p to a member that does not ask for it, if another member has
// no record or the function does not look at topics.
func (s *Snapshot) Owner(p kiel.Partition) (string, bool) {
	i, ok := s.mapping.view().Owner(p)
	if !ok {
		return "", false
	}
	return s.mapping.members[i], true
}

// Claimable returns the partitions that the mapping gives to members that have a record, in kiel's order. Those without one, as members
// in Python are, claim nothing (see package ownership). The slice is the caller's.
func (s *Snapshot) Claimable() []kiel.Partition {
	var claimable []kiel.Partition
	for k, owner := range s.mapping.owner {
		if s.mapping.inputs.read[owner].recorded {
			claimable = append(claimable, s.mapping.in.Partitions[k])
		}
	}
	return claimable
}

// Mapping returns the whole mapping in kiel's shape: member, topic, ids. A
// member that owns nothing is absent. The maps are the caller's.
func (s *Snapshot) Mapping() map[string]map[string][]int32 {
	return allocfn.Mapping(s.mapping.in, s.mapping.owner)
}

// LogValue gives counts, not lists.
func (s *Snapshot) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.Uint64("version", s.Version), slog.String("trigger", string(s.Trigger)), slog.String("func", s.Func),
		slog.Int("members", len(s.Members)), slog.Int("partitions", len(s.Partitions)), slog.Int("unwanted_topics", len(s.Unwanted)), slog.Int("zoned", len(s.Zones)), slog.Int("mine", len(s.mine)),
		slog.Bool("joined", s.Joined),
	}
	if s.Err != nil {
		attrs = append(attrs, slog.Any("error", s.Err))
	}
	return slog.GroupValue(attrs...)
}

// Rebalance is what OnRebalance is told: a snapshot, and how the own share
// differs from that of the snapshot before, of those that OnRebalance was told.
type Rebalance struct {
	Snapshot *Snapshot
	// Added and Removed are in kiel's order. Both are empty when only others'
	// shares changed.
	Added, Removed []kiel.Partition
}

func topics(ps []kiel.Partition) map[string][]int32 {
	m := make(map[string][]int32)
	for _, p := range ps {
		m[p.Topic] = append(m[p.Topic], p.ID)
	}
	return m
}

// without returns what is in a and not in b.
func without(a, b []kiel.Partition) []kiel.Partition {
	in := make(map[kiel.Partition]bool, len(b))
	for _, p := range b {
		in[p] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(p kiel.Partition) bool { return in[p] })
}
