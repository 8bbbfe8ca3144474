package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/status"
)

// maxChanges is how many changes a status lists.
const maxChanges = 16

var errNoAnswer = errors.New("the loop does not answer")

// Alive returns nil when the allocator's loop has answered; also before Run, and when Run has ended. If the loop does not answer
// until ctx ends, Alive returns an error. It needs no server and calls no user code.
func (a *PartitionAllocator) Alive(ctx context.Context) error {
	if !a.ran.Load() {
		return nil
	}
	select {
	case a.probes <- struct{}{}:
		return nil
	case <-a.ended:
		return nil
	case <-ctx.Done():
		return failed("", "", operr.Because(errNoAnswer, context.Cause(ctx)))
	}
}

// NotReady returns what this member waits for. It returns "" if the member takes part: it has joined, its session is trusted, and
// [PartitionAllocator.Ready] has returned nil or would. A member that has a mapping goes on with it when no newer one can be
// computed, as when a newcomer can't run the group's function: that is no reason to wait, it is in the snapshot's Err and among
// the disagreements of Status. It does not block.
func (a *PartitionAllocator) NotReady() string {
	s := a.Snapshot()
	switch {
	case isClosed(a.ended):
		return "nothing: the member has stopped"
	case !isClosed(a.ready):
		return "the first mapping: " + a.lacking(s)
	case !s.Incarnation.Trusted() && a.refusal() != nil:
		return "membership: " + statuswrite.Text(operr.Text(a.refusal()))
	case !s.Incarnation.Trusted():
		return "the ZooKeeper session: it is " + a.session.Stats().State
	case !s.Joined:
		return "membership: " + cmp.Or(statuswrite.Text(text(s.Err)), "the member has left")
	default:
		return ""
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lacking returns what the first mapping waits for.
func (a *PartitionAllocator) lacking(s *Snapshot) string {
	switch {
	case !a.ran.Load():
		return "Run was not called"
	case s == nil && a.refusal() != nil:
		return statuswrite.Text(operr.Text(a.refusal()))
	case s == nil:
		return "the ZooKeeper session is " + a.session.Stats().State
	case s.Err != nil:
		return statuswrite.Text(operr.Text(s.Err))
	case !s.Joined:
		return "the member has not joined"
	default:
		return "the set lacks the seed"
	}
}

// MayBeMember reports whether the ZooKeeper session of this id owns a member's znode, by the members as read last. It also
// returns true if that can't be excluded: before the first read, while the members can't be read, and while neither the metadata
// of a member's znode can be read nor the member says of which session it is. It takes one pass over the members, and does not
// block.
func (a *PartitionAllocator) MayBeMember(session int64) bool {
	v := a.party.View()
	return v == nil || v.Err != nil || slices.ContainsFunc(v.Members, func(m party.Member) bool {
		return m.Czxid == 0 && m.Session == 0 || m.Session == session
	})
}

// refusal returns why the servers refuse this member's znode or the members; nil if they do not.
func (a *PartitionAllocator) refusal() error {
	if v := a.party.View(); v != nil {
		return v.Err
	}
	return nil
}

// Status describes the group as this member sees it: itself, the members as read last, and the partitions with the members to
// which the mapping in force gives them. It knows nothing of claims; Status of package ownership does. It does not block and
// sends nothing; it takes one pass over members and partitions. The result is the caller's.
func (a *PartitionAllocator) Status() *status.Group {
	g := statuswrite.Group(a.group, status.SourceMember, time.Now().UTC())
	g.Self = a.describeSelf()
	m, blocked := newMapping(allocfn.Input{}, "", nil), g.Self.Waiting
	if s := a.Snapshot(); s != nil {
		m = s.mapping
		if s.Joined && s.Incarnation.Trusted() {
			blocked = ""
		}
	}
	in := a.read(m)
	if m.change != nil {
		g.Mapping = &status.Mapping{
			Version: m.change.version, At: m.change.at.UTC(), Function: m.fn, Reason: statuswrite.Clone(m.change.reason),
			Hash: m.hashes.mapping.String(), InputsHash: m.hashes.inputs.String(),
		}
	}
	g.Members = describeMembers(in, m)
	g.Partitions = describePartitions(in, m, a.name, blocked)
	g.Disagreements = a.disagreements(in)
	g.Troubles = append(g.Troubles, a.loop.errs.Troubles()...)
	if changes := a.loop.history.Load(); changes != nil {
		for _, c := range *changes {
			g.Changes = append(g.Changes, c.describe())
		}
	}
	return g
}

// read returns the newest members and items, parsed, as far as possible by the mapping's inputs.
func (a *PartitionAllocator) read(m *mapping) *inputs {
	known := cmp.Or(m.inputs, &inputs{})
	members, items := known.members, known.items
	if v := a.party.View(); v != nil {
		members = v.Members
	}
	if v := a.set.View(); v != nil {
		items = v.Items
	}
	return readInputs(members, items, a.opts.PythonFunc, known)
}

// disagreements returns what keeps the members from acting as one, by the newest views.
func (a *PartitionAllocator) disagreements(in *inputs) []status.Disagreement {
	all := disagreements(in)
	if v := a.set.View(); v != nil && v.Err != nil {
		all = append(all, unreadableSet(v.Err))
	}
	if v := a.zones.View(); v != nil && v.Err != nil {
		all = append(all, unreadableZones(v.Err))
	}
	return all
}

func (a *PartitionAllocator) describeSelf() *status.Self {
	stats, waiting := a.session.Stats(), a.NotReady()
	self := &status.Self{
		Name: a.name, Ready: waiting == "", Waiting: waiting,
		Session: status.Session{
			ID: hex(stats.SessionID), State: stats.State, Incarnation: stats.Incarnation, Timeout: stats.Timeout.Seconds(),
			Expirations: stats.Expirations, Reconnects: stats.Reconnects,
			Servers: a.session.Servers(), Chroot: cmp.Or(a.session.Chroot(), "/"),
		},
	}
	if inc := a.session.Current(); inc != nil && inc.Trusted() {
		self.Session.TrustLeft = max(time.Until(stats.TrustEnd).Seconds(), 0)
	}
	return self
}

func hex(session int64) string { return fmt.Sprintf("0x%x", uint64(session)) }

// describeMembers describes the members that were read, in the mapping.
func describeMembers(in *inputs, m *mapping) []status.Member {
	planned := make([]int, len(m.members))
	for _, owner := range m.owner {
		planned[owner]++
	}
	all := make([]status.Member, len(in.members))
	for i := range in.members {
		all[i] = describeMember(&in.members[i], &in.read[i])
		if k, ok := slices.BinarySearch(m.members, in.members[i].Name); ok {
			all[i].Planned = planned[k]
		}
	}
	return all
}

func describeMember(p *party.Member, r *member) status.Member {
	m := status.Member{Name: statuswrite.Name(p.Name), Since: statuswrite.Millis(p.Ctime), Weight: r.Weight, Zone: r.Zone, Cluster: string(r.cluster()), Topics: r.asksFor()}
	if p.Czxid != 0 {
		m.Session = hex(p.Session)
	}
	if r.recorded() {
		m.Functions = r.runs
	}
	m.Functions, m.Topics = slices.Clone(m.Functions), slices.Clone(m.Topics)
	return m
}

// describePartitions describes the partitions of the mapping and the other ones in the set, sorted by topic and number. blocked
// is why self does not take part, "" if it does.
func describePartitions(in *inputs, m *mapping, self, blocked string) []status.Partition {
	type place struct {
		p kiel.Partition
		i int // the index of p in the mapping, -1 if the mapping gives p to nobody
	}
	places := make([]place, 0, len(in.partitions))
	for i, p := range m.in.Partitions[:len(m.owner)] {
		places = append(places, place{p, i})
	}
	if !sameSlice(in.partitions, m.in.Partitions) || len(m.owner) == 0 {
		for _, p := range in.partitions {
			if _, ok := m.index(p); !ok {
				places = append(places, place{p, -1})
			}
		}
	}
	slices.SortFunc(places, func(x, y place) int { return cmp.Or(cmp.Compare(x.p.Topic, y.p.Topic), cmp.Compare(x.p.ID, y.p.ID)) })
	all := make([]status.Partition, len(places))
	for k, at := range places {
		all[k] = status.Partition{Topic: statuswrite.Name(at.p.Topic), Partition: at.p.ID, State: status.Free, Zone: m.in.Zones[at.p]}
		if at.i >= 0 {
			m.describe(&all[k], at.i, self, blocked)
		}
	}
	return all
}

// describe sets the fields of p that the mapping knows. i is the partition's index in the mapping.
func (m *mapping) describe(p *status.Partition, i int, self, blocked string) {
	move := m.moves[i]
	reason := statuswrite.Clone(move.reason)
	owner := m.members[m.owner[i]]
	p.Planned, p.Previous, p.Reason = statuswrite.Name(owner), statuswrite.Name(move.from), &reason
	if owner != self {
		p.State = status.Elsewhere
		return
	}
	p.State, p.WaitsFor = status.Claiming, blocked
	if blocked != "" {
		p.State = status.Blocked
	}
	p.Times = &status.Times{Settle: move.change.took.Seconds()}
}

func (c *change) describe() status.Change {
	return status.Change{
		Version: c.version, At: c.at.UTC(), Reason: statuswrite.Clone(c.reason),
		Joined: slices.Clone(c.joined.names), Gone: slices.Clone(c.gone.names), JoinedCount: c.joined.count, GoneCount: c.gone.count,
		Members: c.members, Partitions: c.partitions, Moved: c.moved, Given: c.given, TakenAway: c.takenAway, Took: c.took.Seconds(),
	}
}

// remember adds a change to the history, for the status.
func (l *loop) remember(c *change) {
	changes := []*change{c}
	if before := l.history.Load(); before != nil {
		changes = append(changes, (*before)[:min(len(*before), maxChanges-1)]...)
	}
	l.history.Store(&changes)
}
