package ownership

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/session"
)

// release gives claims of ours back and says what became of each: fateGone when
// it is released, fateUnsure when it must be looked at.
//
// The delete is never sent alone. It travels with a check that nobody has written
// the epoch since we claimed, or since we last looked and found the claim ours; or
// with the creation of the epoch znode when there was none.
func (k *keeper) release(ctx context.Context, inc *session.Incarnation, claims []finding) []finding {
	var out []finding
	parents := false // of epochs were made
	say := func(f fate, err error, claims ...finding) {
		for _, c := range claims {
			out = append(out, finding{id: c.id, fate: f, err: err})
		}
	}
	for len(claims) > 0 {
		n := min(len(claims), batchSize)
		batch := claims[:n]
		claims = claims[n:]
		for len(batch) > 0 {
			ops := make([]session.Op, 0, 2*len(batch))
			for _, c := range batch {
				guard := session.CheckOp(k.paths.epoch(c.id), c.epochVersion)
				if c.epochGone {
					guard = session.CreateOp(k.paths.epoch(c.id), nil, session.Persistent)
				}
				ops = append(ops, guard, session.DeleteOp(k.paths.owner(c.id), -1))
			}
			_, err := inc.Multi(ctx, ops...)
			refused, ok := errors.AsType[*session.MultiError](err)
			switch {
			case err == nil:
				say(fateGone, nil, batch...)
				batch = nil
			case ok && errors.Is(err, session.ErrNoNode) && refused.Index%2 == 0 && batch[refused.Index/2].epochGone && !parents:
				parents = true
				if err := inc.EnsurePath(ctx, k.paths.epochs); err != nil {
					say(fateForbidden, fmt.Errorf("ownership: create %s: %w", k.paths.epochs, err), batch...)
					batch = nil
				}
			case ok && refused.Index >= 0 && refused.Index < len(ops):
				i := refused.Index / 2
				switch {
				case refused.Index%2 == 1 && errors.Is(err, session.ErrNoNode):
					say(fateGone, nil, batch[i])
				case errors.Is(err, session.ErrNoNode), errors.Is(err, session.ErrBadVersion), errors.Is(err, session.ErrNodeExists):
					say(fateUnsure, nil, batch[i])
				default:
					say(fateForbidden, fmt.Errorf("ownership: release %s: %w", batch[i].id, err), batch[i])
				}
				batch = append(batch[:i:i], batch[i+1:]...)
			case errors.Is(err, session.ErrTooLarge) && len(batch) > 1:
				claims = append(batch[len(batch)/2:len(batch):len(batch)], claims...)
				batch = batch[:len(batch)/2]
			case errors.Is(err, session.ErrUncertain):
				say(fateUnsure, err, batch...)
				batch = nil
			case errors.Is(err, session.ErrSessionExpired), errors.Is(err, session.ErrClosed):
				say(fateGone, nil, batch...)
				batch = nil
			default:
				say(fateForbidden, fmt.Errorf("ownership: release: %w", err), batch...)
				batch = nil
			}
		}
	}
	return out
}
