package claims

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Release releases claims of ours, and calls found with the outcomes, some at a time: Gone when the claim is released, Unsure
// when it must be read.
//
// The delete is never sent alone. It travels with a check that nobody has written the epoch since we claimed, or since we last
// looked and found that the claim is ours; or with the creation of the epoch znode when there was none.
func (w *Wire) Release(ctx context.Context, inc *session.Incarnation, claims []Finding, found func(...Finding)) {
	r := &round{Wire: w, inc: inc, found: found}
	sending[Finding]{
		inc:     inc,
		ops:     r.releaseOps,
		done:    func(c Finding, _ []session.OpResult) { r.say(Gone, nil, c.ID) },
		refused: r.releaseRefused,
		failed:  r.releaseFailed,
		sent:    r.tell,
	}.send(ctx, claims)
}

func (r *round) releaseOps(claims []Finding) ([]Finding, []session.Op) {
	ops := make([]session.Op, 0, 2*len(claims))
	for _, c := range claims {
		guard := session.CheckOp(r.paths.Epoch(c.ID), c.EpochVersion)
		if c.EpochGone {
			guard = session.CreateOp(r.paths.Epoch(c.ID), nil, session.Persistent)
		}
		ops = append(ops, guard, session.DeleteOp(r.paths.Owner(c.ID), -1))
	}
	return claims, ops
}

func (r *round) releaseRefused(ctx context.Context, c Finding, op int, err error) bool {
	const epoch, owner = 0, 1
	switch {
	case op == owner && errors.Is(err, session.ErrNoNode):
		r.say(Gone, nil, c.ID)
	case op == epoch && errors.Is(err, session.ErrNoNode) && c.EpochGone && r.makeParents(ctx):
		return true
	case op == epoch && errors.Is(err, session.ErrNoNode) && c.EpochGone:
		r.say(Forbidden, r.why(err), c.ID)
	case errors.Is(err, session.ErrNoNode), errors.Is(err, session.ErrBadVersion), errors.Is(err, session.ErrNodeExists):
		r.say(Unsure, err, c.ID)
	default:
		r.say(Forbidden, operr.New("", "release", c.ID.String(), err), c.ID)
	}
	return false
}

func (r *round) releaseFailed(claims []Finding, err error) {
	outcome := Forbidden
	switch {
	case errors.Is(err, session.ErrUncertain):
		outcome = Unsure
	case ended(err):
		outcome, err = Gone, nil
	default:
		err = operr.New("", "release", "", err)
	}
	for _, c := range claims {
		r.say(outcome, err, c.ID)
	}
}
