package ownership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/status"
)

// statusLimit is how long Status waits for the loop.
const statusLimit = time.Second

// Status describes the group as this member sees it: what the allocator's Status has, and for each partition of this member who
// owned it before, why it came, how far it is, and what it waits for. It asks the loop, for at most a second, and neither
// ZooKeeper nor the handlers; nothing is kept for it in between. When the loop does not answer, Self.Waiting says so, and the
// partitions have only what [Owner.Owned] has. It may be called from anywhere, at any time. The result is the caller's.
func (o *Owner) Status() *status.Group {
	g := o.source.status()
	if g.Self == nil {
		g.Self = &status.Self{Name: o.source.Member()}
	}
	g.Self.Waiting = o.NotReady()
	own := o.ownStatus(g.Self)
	g.Self.Ready, g.Self.StuckHandlers = g.Self.Waiting == "", own.stuck
	mergeOwn(g, own.partitions)
	g.Disagreements = append(g.Disagreements, own.disagreements...)
	sortDisagreements(g.Disagreements)
	g.Troubles = errlog.Merge(g.Troubles, o.troubles.Troubles())
	return g
}

// ownStatus is what the loop knows.
type ownStatus struct {
	partitions    []status.Partition
	stuck         []string // partitions whose handlers are stuck
	disagreements []status.Disagreement
}

// ownStatus describes what is this member's.
func (o *Owner) ownStatus(self *status.Self) ownStatus {
	l := o.running()
	if l == nil {
		return ownStatus{}
	}
	ctx, cancel := context.WithTimeout(l.base, statusLimit)
	defer cancel()
	answers := make(chan ownStatus, 1) // the loop may answer when nobody waits any more
	if err := l.ask(ctx, func() { answers <- l.status() }); err == nil {
		return <-answers
	}
	if o.running() != nil {
		self.Waiting = "the loop of the owner does not answer"
	}
	var own ownStatus
	for _, info := range o.Owned() {
		own.partitions = append(own.partitions, info.status(self.Name))
	}
	return own
}

// status describes an open claim.
func (i OwnedClaim) status(owner string) status.Partition {
	since, reason := i.Since.UTC(), statuswrite.Clone(i.Reason)
	p := status.Partition{
		Topic: statuswrite.Name(i.Topic), Partition: i.Partition, State: status.Owned, Owner: owner, Since: &since, Token: i.Token,
		Previous: statuswrite.Name(i.Previous), Reason: &reason,
	}
	if i.Revoking {
		p.State = status.Revoking
	}
	return p
}

// mergeOwn puts what is known of the own partitions in the place of what the allocator says of them.
func mergeOwn(g *status.Group, own []status.Partition) {
	type key struct {
		topic string
		id    int32
	}
	at := make(map[key]int, len(g.Partitions))
	for i, p := range g.Partitions {
		at[key{p.Topic, p.Partition}] = i
	}
	owned := 0
	for _, p := range own {
		if p.Owner != "" {
			owned++
		}
		i, ok := at[key{p.Topic, p.Partition}]
		if !ok {
			g.Partitions = append(g.Partitions, p)
			continue
		}
		merge(&p, g.Partitions[i])
		g.Partitions[i] = p
	}
	slices.SortFunc(g.Partitions, func(a, b status.Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for i := range g.Members {
		if g.Members[i].Name == g.Self.Name {
			g.Members[i].Owned = &owned
		}
	}
}

// merge adds to an own partition what only the allocator knows.
func merge(p *status.Partition, planned status.Partition) {
	p.Planned, p.Zone = planned.Planned, planned.Zone
	if p.Owner == "" { // what the plan says is all that is known of why it is to come
		p.Previous, p.Reason = planned.Previous, planned.Reason
	}
	if planned.Times != nil {
		times := *planned.Times
		if p.Times != nil {
			times.Claim = p.Times.Claim
		}
		p.Times = &times
	}
}

// status describes the partitions of this member.
func (l *loop) status() ownStatus {
	own := ownStatus{disagreements: l.disagreements()}
	v := l.view()
	for id, p := range l.parts {
		if p.Handler == machine.Stuck {
			own.stuck = append(own.stuck, id.String())
		}
		if p.Keep(v) || p.mayHaveClaim() { // else a handler runs for what is no more ours
			own.partitions = append(own.partitions, l.statusOf(p, v))
		}
	}
	for id, err := range l.refusals {
		if l.parts[id] == nil {
			own.partitions = append(own.partitions, status.Partition{
				Topic: statuswrite.Name(id.Topic), Partition: id.ID, State: status.Blocked, WaitsFor: statuswrite.Text(err.Error()),
			})
		}
	}
	slices.Sort(own.stuck)
	return own
}

// mayHaveClaim reports whether a claim of ours may exist, as far as is known. It returns false for one whose request is under
// way.
func (p *part) mayHaveClaim() bool {
	return p.Claim != machine.Free && p.Claim != machine.Claiming && p.Claim != machine.Waiting
}

// statusOf describes a partition.
func (l *loop) statusOf(p *part, v machine.View) status.Partition {
	s := status.Partition{Topic: statuswrite.Name(p.id.Topic), Partition: p.id.ID}
	s.State, s.WaitsFor = p.stateOf(v)
	if c := p.claim; c != nil && c.isOpen() {
		since, reason := c.opened.UTC(), statuswrite.Clone(c.origin.reason)
		if c.revoking {
			reason = statuswrite.Clone(p.goes)
		}
		s.Owner, s.Since, s.Token, s.Previous, s.Reason = l.o.source.Member(), &since, c.token, statuswrite.Name(c.origin.previous), &reason
		s.Times = &status.Times{Claim: p.took.Seconds()}
	}
	return s
}

// stateOf returns where a partition is, and what it waits for if its handler is not at work.
func (p *part) stateOf(v machine.View) (state status.State, waitsFor string) {
	switch {
	case p.Claim == machine.Revoked:
		return status.Revoking, "its handler"
	case p.Claim == machine.Open && p.Handler == machine.Resting:
		return status.Resting, "a pause after its handler returned: " + statuswrite.Text(operr.Text(p.rests))
	case p.Claim == machine.Open:
		return status.Owned, ""
	case !p.Keep(v):
		return status.Revoking, "the release of its claim"
	case p.Handler != machine.None:
		return status.Blocked, "its handler for an earlier claim, which has not returned"
	case !v.Trusted:
		return status.Claiming, "trust in the ZooKeeper session"
	case p.by == status.PersistentClaim:
		return status.Blocked, "a znode that no session owns, in the place of its claim: kiel release deletes it"
	case p.by == status.UnreadableClaim:
		return status.Blocked, fmt.Sprintf("a znode of session 0x%x in the place of its claim, which is no member's: end that process", uint64(p.other.session))
	case p.by == status.OrphanClaim:
		return status.Blocked, fmt.Sprintf("the claim of %s in session 0x%x, which is no member's: end that process", p.owner, uint64(p.other.session))
	case p.Claim == machine.Waiting && p.owner != "":
		return status.Waiting, "the claim of " + statuswrite.Name(p.owner)
	case p.Claim == machine.Waiting:
		return status.Waiting, "the claim of another"
	case p.NoRoom:
		return status.Blocked, "room for its claim in the ZooKeeper session"
	case p.Paused:
		return status.Claiming, "a pause after an error: " + statuswrite.Text(p.trouble.Error())
	default:
		return status.Claiming, ""
	}
}
