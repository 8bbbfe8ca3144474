package allocator

import (
	"context"
	"slices"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// publication says what a snapshot tells beside the last good mapping.
type publication struct {
	inc     *session.Incarnation // under which the newest views were read; nil before the first
	joined  bool                 // this member has joined
	applied bool                 // the mapping is new
	end     error                // why Run ends; nil while it goes on, and when ctx or Stop ends it
}

// republish publishes the last snapshot again, with the present errors. The snapshot stays joined only if stay is true.
func (l *loop) republish(stay bool) {
	if l.last != nil {
		l.finish(publication{inc: l.last.Incarnation, joined: l.last.Joined && stay})
	}
}

// finish publishes a snapshot of the last good mapping.
func (l *loop) finish(p publication) {
	inc, joined := p.inc, p.joined
	errs := []error{p.end, l.computeErr, l.itemsErr}
	trusted := inc == nil || l.readers.lifetime(inc).Err() == nil
	l.reportMembers(kindAllocation, l.computeErr, joined && trusted)
	l.report(kindOddItem, l.itemsErr)
	if l.members != nil && p.end == nil {
		errs = append(errs, l.members.NameHeld, l.members.Err)
		l.reportMembers(kindName, l.members.NameHeld, joined && trusted)
		l.report(kindMembership, l.members.Err)
	}
	if l.set != nil {
		errs = append(errs, l.set.Err)
		l.report(kindSet, l.set.Err)
	}
	if l.zones != nil {
		errs = append(errs, l.zones.Err)
		l.report(kindZones, l.zones.Err)
	}
	l.lost = nil
	if inc != nil {
		life := l.readers.lifetime(inc)
		if life.Err() != nil {
			lost := operr.New("", "session not trusted", "", context.Cause(life))
			errs = append(errs, lost)
			l.report(kindSession, lost)
			joined = false
		} else {
			l.lost = life.Done()
			l.report(kindSession, nil)
		}
	}
	s := &Snapshot{
		Version: 1, At: time.Now(),
		Members: l.good.members, Partitions: l.good.in.Partitions, Unwanted: l.good.unwanted, Zones: l.good.in.Zones, Func: l.good.fn,
		Joined: joined, Incarnation: inc, Err: failedAll(errs), mapping: l.good,
	}
	if joined {
		s.mine = l.good.share(l.name)
	}
	moved := len(s.mine) > 0
	if l.last != nil {
		s.Version = l.last.Version + 1
		moved = !slices.Equal(s.mine, l.last.mine)
	}
	if p.applied {
		l.good.change.version, l.good.change.at = s.Version, s.At
	}
	if l.good.change != nil {
		s.Reason = l.good.change.reason
	}
	l.last = s
	l.publish(s)
	l.log.Debug("snapshot", "snapshot", s)
	if p.applied || moved {
		l.delivery.snapshot(s)
	}
}

// logRebalance logs the mapping that was applied last, if there are members.
func (l *loop) logRebalance() {
	c := l.good.change
	if c.members == 0 {
		return // nobody is there yet, or any more: the member joins, or has left
	}
	args := []any{
		"version", c.version, "reason", c.reason, "joined_count", c.joined.count, "gone_count", c.gone.count,
		"members", c.members, "partitions", c.partitions, "moved", c.moved, "given", c.given, "taken_away", c.takenAway, "took", c.took,
	}
	if c.joined.count > 0 {
		args = append(args, "joined", &c.joined)
	}
	if c.gone.count > 0 {
		args = append(args, "gone", &c.gone)
	}
	l.log.Info("rebalanced", args...)
}

// The kinds of errors in the log and in the status.
const (
	kindAllocation = "allocation" // no mapping could be computed
	kindFunc       = "panic in Func"
	kindMembership = "membership"     // the servers refuse this member's znode, or the members
	kindOddItem    = "odd-item"       // items of the set that are no partitions
	kindName       = "name"           // another session holds this member's name
	kindRecords    = "records"        // records of members
	kindSeed       = "seed"           // the seed could not be added to the set
	kindSession    = "session"        // the session is not trusted
	kindSet        = "set"            // the set can't be read
	kindUnwanted   = "unwanted-topic" // no member asks for topics in the set
	kindZones      = "zones"          // the zones can't be read
)

// reportMembers is report for what a member alone can know to have recovered: who is not in the group, or leaves it, computes a
// mapping of others, and meets nobody of its name.
func (l *loop) reportMembers(kind string, err error, joined bool) {
	if err != nil || joined {
		l.report(kind, err)
	}
}

// report logs an error of a kind, or with nil that the kind has recovered. It calls OnError unless the error is the one of this
// kind that was reported last.
func (l *loop) report(kind string, err error) {
	if err == nil {
		l.errs.OK(kind, "")
	} else {
		err = failed("", "", err)
		l.errs.FailedWarn(kind, "", err)
	}
	if l.reported[kind] == text(err) {
		return
	}
	l.reported[kind] = text(err)
	if err != nil {
		l.delivery.error(err)
	}
}
