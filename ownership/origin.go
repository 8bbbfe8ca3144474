package ownership

import (
	"cmp"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// origin is how a partition comes to this member.
type origin struct {
	previous string // the owner before, as statuswrite.Name has it, "" when it is not known
	reason   status.Reason
}

// origin returns how a partition that is about to be claimed or opened comes to this member. What the loop saw itself comes
// before what the plan says: the end of an earlier claim of ours, and the holder of a claim that was in the way. After the end of
// a claim of ours the owner before is this member, unless another may have come and gone since: then nobody is known.
func (l *loop) origin(p *part) origin {
	self := l.o.source.Member()
	if p.again != "" {
		previous := p.owner
		if previous == "" && !p.between {
			previous = self
		}
		return origin{previous, statuswrite.Reason(p.again)}
	}
	move, ok := l.plan.move(p.id)
	if !ok {
		return origin{p.owner, statuswrite.Reason(status.Unknown)}
	}
	from, reason := statuswrite.Name(move.From), move.Reason
	switch {
	case p.owner == "":
	case reason.Code == status.MemberGone && p.owner == from && !l.plan.member(move.From):
		reason = statuswrite.Reason(status.MemberLeft, move.From) // one that expires takes its claims with it
	case reason.Code == status.Started && p.owner != self:
		reason = statuswrite.Reason(status.MemberJoined, self) // as the others have it
	}
	return origin{cmp.Or(p.owner, from), reason}
}

// destination returns where a partition that is not kept goes, as statuswrite.Name has it and "" when that is not known, and why.
func (l *loop) destination(p *part) (next string, reason status.Reason) {
	if owner, ok := l.plan.owner(p.id); ok && owner != l.o.source.Member() {
		next = statuswrite.Name(owner)
	}
	if l.phase != working {
		return next, statuswrite.Reason(status.Stopped)
	}
	if move, ok := l.plan.move(p.id); ok {
		return next, move.Reason
	}
	return next, l.plan.reason // it is in no mapping any more
}
