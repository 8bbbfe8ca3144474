package party

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/session"
)

// refusal reports whether err is an answer that stays the same until an operator changes something.
func refusal(err error) bool {
	return err != nil && !session.Retryable(err) && session.Classify(err) != session.ClassUncertain
}

// readingEnded notes how an attempt to read the members, or a part of it, has ended.
func (l *loop) readingEnded(err error) {
	switch {
	case err == nil, errors.Is(err, session.ErrNoNode):
		l.blind = false
	case refusal(err):
		l.blind = true
	}
}

// carryOver makes view, the newest one, the view of a member that can't list the members now.
//
// A znode that was among those members keeps this member joined, also in a new incarnation of its session: the other members plan
// partitions for it, which nobody else may take. A znode that was not, such as that of a new session, is deleted: a member that
// never sees the others takes no partition, and theirs is what it leaves.
func (l *loop) carryOver(ctx context.Context, view *View) {
	if view.Incarnation != nil && view.Incarnation.SessionID() == l.sid {
		view.Incarnation = l.inc // what that session still holds is held or released under the trust of now
	}
	r, err := readOne(ctx, l.inc, l.path, l.name)
	switch {
	case err != nil, r.exists && r.Czxid == 0: // not known, and only another program deletes the znode
		view.Joined = l.own != 0
	case !r.exists || r.Session != l.sid:
		view.Joined = false
	case r.Czxid == l.own:
		view.Joined = true
	default:
		view.Joined = false
		err := l.deleteOwn(ctx, r.version)
		if err == nil || errors.Is(err, session.ErrNoNode) {
			l.log.WarnContext(ctx, "left until the members can be listed", "session_id", hex(l.sid))
		} else if ctx.Err() == nil {
			l.log.DebugContext(ctx, "trying again", "error", err)
		}
	}
}
