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

// Snapshot is one state of the group as this member sees it: the mapping that is in force, with the members and partitions that
// it was computed from. A Snapshot never changes; its slices and its map must not be changed. Its methods don't block and may be
// called from any goroutine.
// The first call of Owner or Share makes an index of the mapping, which takes one pass over the partitions, as each call of
// Mapping does; snapshots with the same mapping share the index.
type Snapshot struct {
	// Version grows by one with each snapshot of this allocator, from 1.
	Version uint64
	// Reason is why the mapping differs from the one before, with names of members, topics or functions. Snapshots with the same
	// mapping have the same Reason: a snapshot that differs only in Joined, Incarnation or Err has the one of the snapshot
	// before. It is zero before the first mapping. [Snapshot.Move] has the reasons of single partitions.
	Reason status.Reason
	// At is when the snapshot was made.
	At time.Time

	// Members and Partitions are those for which the mapping was computed, in kiel's order. Partitions are those of the set
	// without those of Unwanted topics. While Err says that no mapping could be computed, Members, Partitions and Unwanted are
	// those of the last good one.
	Members    []string
	Partitions []kiel.Partition
	// Unwanted are the topics in the set for which no member asks, sorted byte by byte: nobody owns their partitions
	// ([ErrUnwantedTopic]). It is empty while a member asks for all topics or has no record. The names are those in the set, to
	// which somebody may have written any text.
	Unwanted []string
	// Zones has the zones of partitions, in the set or not, with which the mapping was computed. It is empty while the zones'
	// znode can't be read.
	Zones map[kiel.Partition]string
	// Func is the ID of the function that computed the mapping; "" before the first mapping.
	Func string

	// Joined reports whether this member takes part: its session's znode existed when the members were read, and the session was
	// trusted when the snapshot was made. If Joined is false, this member's share is empty. Then a trusted Incarnation means that
	// the member has left the group, and one that has ended means that nothing is known until the next.
	Joined bool
	// Incarnation is the incarnation of the session under which members, set and zones were all read. Act on a snapshot only
	// while it is trusted. It is nil only when Run ended before anything was read.
	Incarnation *session.Incarnation

	// Err joins what is wrong, and is nil if nothing is: [ErrFuncFailed], [ErrFuncMismatch], [ErrSetUnreadable], items that are
	// not name:number ([kiel.ErrInvalidPartition]), [ErrZonesUnreadable], the cause for which the session is not trusted,
	// [ErrNameHeld], [ErrNameTaken].
	Err error

	mapping *mapping // never nil
	mine    []kiel.Partition
}

// mapping is the result of a computation; snapshots share it.
type mapping struct {
	in    allocfn.Input
	fn    string // the ID of the function
	owner allocfn.Assignment

	unwanted []string // topics that no member asks for, sorted
	leftOut  int      // how many partitions these topics have

	inputs   *inputs // the parsed inputs, from which in was made
	occasion occasion
	change   *change // how the mapping differs from the one before; nil before the first
	moves    []*move // how each partition came to its owner
	mine     int     // how many partitions this member has
	hashes   hashes  // zero before the first mapping

	members []string             // the names of in.Members
	view    func() *allocfn.View // returns the index of the mapping, which the first call makes
}

// newMapping returns the mapping that the function with the ID fn has computed from in.
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

// topics returns the partitions of the member with this index, in kiel's form.
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

// share returns the partitions of the named member, in kiel's order.
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

// Mine returns the partitions that the mapping gives to this member, in kiel's order; none if the member has not joined. The
// slice is the caller's.
func (s *Snapshot) Mine() []kiel.Partition { return slices.Clone(s.mine) }

// Share returns the partitions that the mapping gives to the named member, as topic and ids in kiel's order, which is kiel's form
// of an allocation. The map is empty, not nil, if there are none or there is no such member. The map is the caller's.
func (s *Snapshot) Share(member string) map[string][]int32 {
	i, ok := slices.BinarySearch(s.mapping.members, member)
	if !ok {
		return map[string][]int32{}
	}
	return s.mapping.topics(i)
}

// Planned returns the member to which the mapping gives p, and false if p is not in Partitions: the set lacks p, or no member
// asks for its topic. The mapping may give p to a member that does not ask for the topic, if another member has no record or the
// function does not look at topics.
func (s *Snapshot) Planned(p kiel.Partition) (string, bool) {
	i, ok := s.mapping.view().MemberOf(p)
	if !ok {
		return "", false
	}
	return s.mapping.members[i], true
}

// Claimable returns the partitions that the mapping gives to members with a record, in kiel's order. Members without a record,
// such as those in Python, claim nothing (see package ownership). The slice is the caller's.
func (s *Snapshot) Claimable() []kiel.Partition {
	var claimable []kiel.Partition
	for k, owner := range s.mapping.owner {
		if s.mapping.inputs.read[owner].recorded() {
			claimable = append(claimable, s.mapping.in.Partitions[k])
		}
	}
	return claimable
}

// Mapping returns the whole mapping in kiel's form: member, topic, ids. A member that gets nothing is absent. The maps are the
// caller's.
func (s *Snapshot) Mapping() map[string]map[string][]int32 {
	return allocfn.Mapping(s.mapping.in, s.mapping.owner)
}

// LogValue returns a snapshot with counts instead of lists.
func (s *Snapshot) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.Uint64("version", s.Version), slog.Any("reason", s.Reason), slog.String("func", s.Func),
		slog.Int("members", len(s.Members)), slog.Int("partitions", len(s.Partitions)), slog.Int("unwanted_topics", len(s.Unwanted)), slog.Int("zoned", len(s.Zones)), slog.Int("mine", len(s.mine)),
		slog.Bool("joined", s.Joined),
	}
	if s.Err != nil {
		attrs = append(attrs, slog.Any("error", s.Err))
	}
	return slog.GroupValue(attrs...)
}

// Rebalance is the argument of OnRebalance.
type Rebalance struct {
	Snapshot *Snapshot
	// Added and Removed are the partitions that this member has got and lost since the snapshot of the last call, in kiel's
	// order. Both are empty if only other members' shares have changed.
	Added, Removed []kiel.Partition
}

// topics returns partitions in kiel's form.
func topics(ps []kiel.Partition) map[string][]int32 {
	m := make(map[string][]int32)
	for _, p := range ps {
		m[p.Topic] = append(m[p.Topic], p.ID)
	}
	return m
}

// without returns the elements of a that b does not have.
func without(a, b []kiel.Partition) []kiel.Partition {
	in := make(map[kiel.Partition]bool, len(b))
	for _, p := range b {
		in[p] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(p kiel.Partition) bool { return in[p] })
}
