package semaphore

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// lease is the znode of one lease of a handle.
type lease struct {
	semaphore *Semaphore
	inc       *session.Incarnation // of the session that owns the znode
	path      string
	own       *hold.Own
}

// errRefused says that a lease was not created, because the number of leases was written, the semaphore's znode is gone, or the
// request did not reach the servers.
var errRefused = errors.New("lease was not created")

// make creates the znode if the number of leases has that version and the contender of the inner lock exists. After an error the
// znode does not exist, unless the error wraps hold.ErrUnsure.
func (l *lease) make(life context.Context, contender string, version int32) error {
	s := l.semaphore
	_, err := l.inc.Multi(life,
		session.CheckOp(s.path, version),
		session.CheckOp(contender, -1),
		session.CreateOp(l.path, s.data, session.Ephemeral))
	switch {
	case errors.Is(err, session.ErrUncertain):
		made, err := l.find(life)
		if err != nil && !hold.Over(err) {
			err = operr.Because(hold.ErrUnsure, err)
		}
		if err == nil && !made {
			err = errRefused
		}
		return err
	case errors.Is(err, session.ErrBadVersion):
		return errRefused
	case errors.Is(err, session.ErrNoNode):
		if refused, ok := errors.AsType[*session.MultiError](err); ok && refused.Index == 1 {
			return errAgain
		}
		return errRefused
	default:
		return err
	}
}

// find reports whether the znode exists after the reply to its create was lost. Sync comes after the request, which has returned:
// a znode that find does not see now will not appear later.
func (l *lease) find(life context.Context) (bool, error) {
	if err := l.inc.Sync(life, l.semaphore.path); err != nil && !errors.Is(err, session.ErrNoNode) {
		return false, err
	}
	exists, stat, err := l.inc.Exists(life, l.path)
	return exists && stat.EphemeralOwner == l.inc.SessionID(), err
}

// watchNumber reads the number of leases and sets a watch on it. The error wraps ErrMaxLeases if the number is not
// Options.MaxLeases.
func (l *lease) watchNumber(ctx context.Context, inc *session.Incarnation) (*session.Watch, error) {
	data, _, number, err := inc.GetW(ctx, l.semaphore.path)
	if err == nil && l.semaphore.differs(data) {
		number.Stop()
		return nil, l.semaphore.disagree(data)
	}
	return number, err
}

// remove tries once to delete the znode, see [hold.NewOwn]. No other znode ever has this name, so the one that exists after a
// Sync is this one.
func (l *lease) remove(life context.Context) error {
	return hold.Delete(life, l.inc, l.path, l.find)
}
