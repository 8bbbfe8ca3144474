package ownership

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// persistent reports whether a znode stays until somebody deletes it: it belongs to no session, or is a container.
func persistent(stat session.Stat) bool {
	return stat.EphemeralOwner == 0 || stat.EphemeralOwner == math.MinInt64
}

// standing is a znode in the place of a claim, as a member that waits for it has read it.
type standing struct {
	owner      string // as statuswrite.Name has it; "" when nobody is known
	czxid      int64  // 0 when none was read
	session    int64  // that owns it
	persistent bool
	readable   bool // its data is a claim's record
}

// standingOf returns what was read.
func standingOf(data []byte, stat session.Stat) standing {
	held, err := claims.Decode(data) // data that can't be read name nobody
	return standing{
		owner: statuswrite.Name(held.Owner), czxid: stat.Czxid, session: stat.EphemeralOwner, persistent: persistent(stat), readable: err == nil,
	}
}

// obstacle is what is in the way of a partition's claim.
type obstacle struct {
	owner   string                  // of the claim that was waited for last, since ours ended, as statuswrite.Name has it; "" when nobody is known
	other   standing                // the znode that is waited for
	late    bool                    // it has been for longer than its owner may take to finish
	by      status.DisagreementKind // why it does not go as a member's claim does; "" if it does
	strange int64                   // the czxid of what was waited for last
	since   time.Time               // since when its session is known to be no member's; zero while it may be one's
}

// noteStanding notes a znode that is in the place of a partition's claim.
func (l *loop) noteStanding(p *part, s standing) {
	l.o.metrics.claims.WithLabelValues(resultConflict).Inc()
	l.o.log.Debug("partition is held by another", "partition", p.id.String(), "holder", s.owner, "persistent", s.persistent, "session_id", fmt.Sprintf("0x%x", uint64(s.session)))
	p.owner, p.other = s.owner, s
	if p.strange != s.czxid {
		p.strange, p.since = s.czxid, time.Time{}
	}
	l.judge(p)
}

// noteLate notes that another's claim has been waited for longer than its owner may take to finish.
func (l *loop) noteLate(p *part) {
	l.o.metrics.waitsOverdue.Inc()
	l.warn(troubleHeld, p.id.String(), fmt.Errorf("%s: the claim of %.80q has stood for %v", p.id, p.owner, l.o.opts.RebalanceTimeout))
	p.late = true
	l.changed(p)
}

// noteWait notes that a wait is over.
func (l *loop) noteWait(t turn) {
	t.late, t.by, t.other = false, "", standing{}
	l.recovered(troubleHeld, t.id.String())
	if t.in == machine.Refused {
		l.failedPart(troubleClaim, t.id, t.err)
	}
}

// judge decides whether the znode in the place of a partition's claim is no claim of a member, so that it blocks the partition.
// A claim whose session is no member's is judged later: members that leave keep their claims until their work is finished.
func (l *loop) judge(p *part) {
	var found status.DisagreementKind
	switch {
	case l.inc == nil:
		return // its wait ends
	case p.other.persistent:
		found = status.PersistentClaim
	case !p.other.readable:
		found = status.UnreadableClaim
	case l.o.source.mayBeMember(p.other.session):
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = time.Now()
	case time.Since(p.since) >= l.inc.Timeout()+l.o.opts.RebalanceTimeout:
		found = status.OrphanClaim
	}
	if p.by != found && found != "" && !l.blockedNews { // several may be found together: one report names all
		l.blockedNews = true
		l.after(minRetry, l.reportBlocked)
	}
	p.by = found
	l.changed(p)
}

// judgeAll judges again what is waited for.
func (l *loop) judgeAll() {
	for _, p := range l.parts {
		if p.Claim == machine.Waiting && p.other.czxid != 0 {
			l.judge(p)
		}
	}
}

// reportBlocked reports the partitions that are blocked, if there are any: in one error those by persistent znodes, in one those
// by znodes of sessions that are no members'.
func (l *loop) reportBlocked() {
	l.blockedNews = false
	var persistent, foreign []kiel.Partition
	for id, p := range l.parts {
		switch p.by {
		case "":
		case status.PersistentClaim:
			persistent = append(persistent, id)
		default:
			foreign = append(foreign, id)
		}
	}
	if len(persistent) > 0 {
		l.o.metrics.claimFailed.Inc()
		l.failed(troublePersistent, "", fmt.Errorf("%w: %s: kiel release deletes it; do that once nobody works on the partition", ErrPersistentClaim, l.named(persistent)))
	}
	if len(foreign) > 0 {
		l.o.metrics.claimFailed.Inc()
		l.failed(troubleForeign, "", fmt.Errorf("%w: %s: end the process of that session", ErrForeignClaim, l.named(foreign)))
	}
}

// named names the znodes in the place of claims, or the first of many, with the sessions that own them.
func (l *loop) named(ids []kiel.Partition) string {
	kiel.SortPartitions(ids)
	var names []string
	for _, id := range ids[:min(len(ids), statuswrite.MaxNames)] {
		name := fmt.Sprintf("%.300q", l.o.paths.Owner(id))
		if p := l.parts[id]; p.by != status.PersistentClaim {
			name += fmt.Sprintf(" of session 0x%x", uint64(p.other.session))
		}
		names = append(names, name)
	}
	if more := len(ids) - statuswrite.MaxNames; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// disagreements returns what blocks partitions of this member.
func (l *loop) disagreements() (all []status.Disagreement) {
	names := map[status.DisagreementKind][]string{}
	for id, p := range l.parts {
		names[p.by] = append(names[p.by], id.String())
	}
	for _, kind := range []status.DisagreementKind{status.OrphanClaim, status.PersistentClaim, status.UnreadableClaim} {
		if len(names[kind]) > 0 {
			slices.Sort(names[kind])
			all = append(all, claimDisagreement(kind, l.o.paths, names[kind]))
		}
	}
	return all
}

// claimDisagreement returns the disagreement of a kind about claims.
func claimDisagreement(kind status.DisagreementKind, paths claims.Paths, names []string) status.Disagreement {
	texts := map[status.DisagreementKind]string{
		status.PersistentClaim: "A znode that no session owns stands in the place of the claim, so that nobody can claim the partition. " +
			"Once nobody works on it, delete " + paths.Owners + "/<partition>.",
		status.OrphanClaim: "The owner is no member, or joined again in another session. Members that leave finish their work so, for RebalanceTimeout at most. " +
			"If it lasts longer, end that process: its claims go with its session.",
		status.StrayClaim: "The claim is of a partition that is not in the group's set. It goes when its owner has finished; one that no session owns can be deleted.",
		status.UnreadableClaim: "The claim's data is not what members write, or may not be read. Nobody can claim the partition before that session ends. " +
			"End the process that made it, or delete " + paths.Owners + "/<partition> once nobody works on the partition.",
	}
	return statuswrite.Disagreement(kind, texts[kind], names...)
}

// sortDisagreements sorts by kind.
func sortDisagreements(all []status.Disagreement) {
	slices.SortStableFunc(all, func(a, b status.Disagreement) int { return cmp.Compare(a.Kind, b.Kind) })
}
