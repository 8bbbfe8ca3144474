package party

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/session"
)

// leave makes sure that this member's znode is gone, and wakes Leave.
func (l *loop) leave(ctx context.Context) error {
	if l.hasLeft {
		return nil
	}
	if err := l.remove(ctx); err != nil {
		return err
	}
	l.own, l.absent, l.hasLeft = 0, false, true
	close(l.left)
	return nil
}

// remove deletes the znode of this member's name if this session owns it.
func (l *loop) remove(ctx context.Context) error {
	if l.name == "" || l.inc == nil {
		return nil
	}
	for {
		// A create whose reply was lost was executed before the answer to the Sync, or never will be.
		if err := l.inc.Sync(ctx, l.path); err != nil {
			return ended(err)
		}
		exists, stat, err := l.inc.Exists(ctx, l.node)
		if err != nil {
			return ended(err)
		}
		if !exists || stat.EphemeralOwner != l.sid {
			return l.exitEntry(ctx)
		}
		err = l.deleteOwn(ctx, stat.Version)
		switch {
		case err == nil:
			l.log.InfoContext(ctx, "member znode deleted", "session_id", hex(l.sid))
			return nil
		case errors.Is(err, session.ErrNoNode), errors.Is(err, session.ErrBadVersion):
			// Another program deleted or wrote the znode first: read again.
		case session.Classify(err) == session.ClassUncertain && ctx.Err() == nil:
			// Reading again shows the outcome.
		default:
			return ended(err)
		}
	}
}

// ended returns nil for err if the ZooKeeper session is over, and with it this member's znode.
func ended(err error) error {
	if hold.Over(err) {
		return nil
	}
	return err
}

// leaveFinally leaves at the end of Run, when ctx may have ended.
func (l *loop) leaveFinally(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.sess.Timeout())
	defer cancel()
	if l.stop(ctx) {
		l.kept.Store(true)
		return nil
	}
	return l.leave(ctx)
}
