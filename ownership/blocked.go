package ownership

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// maxNamed is how many znodes an error names.
const maxNamed = 5

// persistent reports whether a znode stays until somebody deletes it: it belongs to no session, or is a container.
func persistent(stat session.Stat) bool {
	return stat.EphemeralOwner == 0 || stat.EphemeralOwner == math.MinInt64
}

// standing is a znode in the place of a claim, as a member that waits for it has read it.
type standing struct {
	holder     string // as status.Shown has it; "" when nobody is known
	czxid      int64  // 0 when none was read
	session    int64  // that owns it
	persistent bool
	readable   bool // its data is a claim's record
}

// standingOf returns what was read.
func standingOf(data []byte, stat session.Stat) standing {
	held, err := claims.Decode(data) // of what can't be read nobody is known
	return standing{
		holder: status.Shown(held.Owner), czxid: stat.Czxid, session: stat.EphemeralOwner, persistent: persistent(stat), readable: err == nil,
	}
}

// onStanding notes what stands in the place of a partition's claim.
func (l *loop) onStanding(p *part, s standing) {
	p.holder, p.other = s.holder, s
	if p.strange != s.czxid {
		p.strange, p.strangeSince = s.czxid, time.Time{}
	}
	l.judge(p)
}

// judge decides whether what stands in the place of a partition's claim is no claim of a member's, so that it blocks the partition.
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
		p.strangeSince = time.Time{}
	case p.strangeSince.IsZero():
		p.strangeSince = time.Now()
	case time.Since(p.strangeSince) >= l.inc.Timeout()+l.o.opts.RebalanceTimeout:
		found = status.OrphanClaim
	}
	l.setBlocked(p, found)
}

// judgeAll judges again what is waited for.
func (l *loop) judgeAll() {
	for _, p := range l.parts {
		if p.busy == waiting && p.other.czxid != 0 {
			l.judge(p)
		}
	}
}

// setBlocked notes what blocks a partition; "" is nothing.
func (l *loop) setBlocked(p *part, by status.DisagreementKind) {
	if p.blocked == by {
		return
	}
	l.blocked[p.blocked]--
	l.blocked[by]++
	p.blocked = by
	if by != "" && !l.blockedNews { // where there is one there may be many
		l.blockedNews = true
		l.after(minRetry, l.reportBlocked)
	}
	foreign := l.blocked[status.UnreadableClaim] + l.blocked[status.OrphanClaim]
	if l.blocked[status.PersistentClaim] == 0 {
		l.recovered(troublePersistent, "")
	}
	if foreign == 0 {
		l.recovered(troubleForeign, "")
	}
	l.o.metrics.unclaimed.WithLabelValues(reasonPersistent).Set(float64(l.blocked[status.PersistentClaim]))
	l.o.metrics.unclaimed.WithLabelValues(reasonForeign).Set(float64(foreign))
}

// reportBlocked reports the partitions that are blocked, if there are any: in one error those by persistent znodes, in one those by
// znodes of sessions that are no members'.
func (l *loop) reportBlocked() {
	l.blockedNews = false
	var persistent, foreign []kiel.Partition
	for id, p := range l.parts {
		switch p.blocked {
		case "":
		case status.PersistentClaim:
			persistent = append(persistent, id)
		default:
			foreign = append(foreign, id)
		}
	}
	if len(persistent) > 0 {
		l.o.metrics.claimFailed.Inc()
		l.failed(troublePersistent, "", fmt.Errorf("%w: %s: delete by hand, once nobody works on the partition", ErrPersistentClaim, l.named(persistent)))
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
	for _, id := range ids[:min(len(ids), maxNamed)] {
		name := fmt.Sprintf("%.300q", l.o.paths.Owner(id))
		if p := l.parts[id]; p.blocked != status.PersistentClaim {
			name += fmt.Sprintf(" of session 0x%x", uint64(p.other.session))
		}
		names = append(names, name)
	}
	if more := len(ids) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// disagreements returns what blocks partitions of this member.
func (l *loop) disagreements() (all []status.Disagreement) {
	names := map[status.DisagreementKind][]string{}
	for id, p := range l.parts {
		names[p.blocked] = append(names[p.blocked], id.String())
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
	return status.NewDisagreement(kind, texts[kind], names...)
}

// sortDisagreements sorts by kind.
func sortDisagreements(all []status.Disagreement) {
	slices.SortStableFunc(all, func(a, b status.Disagreement) int { return cmp.Compare(a.Kind, b.Kind) })
}
