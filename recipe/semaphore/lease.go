package semaphore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// The pause between two tries to remove a lease that can't be removed.
const (
	minPause = 100 * time.Millisecond
	maxPause = time.Second
)

// lease is one znode of ours.
type lease struct {
	semaphore *Semaphore
	inc       *session.Incarnation // of the session that owns it; used for as long as that lives
	path      string
	off       sabotage.Rules

	remove sync.Once
	gone   chan struct{} // closed when it is proved that the znode does not exist
}

// errUnsure says that a lease may have been made, or may yet be.
var errUnsure = errors.New("semaphore: created or not")

// make creates the znode, and reports whether it stands. An error, or false, says that it
// does not, unless the error wraps errUnsure.
func (l *lease) make(life context.Context, contender string, version int32) (bool, error) {
	s := l.semaphore
	if l.off.Off(sabotage.NumberChecked) {
		version = -1
	}
	if l.off.Off(sabotage.ContenderChecked) {
		contender = s.path
	}
	_, err := l.inc.Multi(life,
		session.CheckOp(s.path, version),
		session.CheckOp(contender, -1),
		session.CreateOp(l.path, s.data, session.Ephemeral))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, session.ErrUncertain):
		made, err := l.find(life)
		if err != nil && !over(err) {
			err = fmt.Errorf("%w: %w", errUnsure, err)
		}
		return made, err
	case errors.Is(err, session.ErrBadVersion):
		return false, nil
	case errors.Is(err, session.ErrNoNode):
		if refused, ok := errors.AsType[*session.MultiError](err); ok && refused.Index == 1 {
			return false, errAgain
		}
		return false, nil
	default:
		return false, err
	}
}

// find looks for the znode after the reply was lost. The request has returned, and the
// Sync is behind it: what is not seen now will not appear later.
func (l *lease) find(life context.Context) (bool, error) {
	if err := l.inc.Sync(life, l.semaphore.path); err != nil && !errors.Is(err, session.ErrNoNode) {
		return false, err
	}
	exists, stat, err := l.inc.Exists(life, l.path)
	return exists && stat.EphemeralOwner == l.inc.SessionID(), err
}

// watches tell when to look at a lease again.
type watches struct {
	lease, number *session.Watch
}

func (w watches) stop() {
	w.lease.Stop()
	w.number.Stop()
}

// look reads the znode, and the number of leases, and sets a watch on each. The error is ErrLost when the znode is not
// there, and ErrMaxLeases when the number is another than ours.
func (l *lease) look(ctx context.Context, inc *session.Incarnation) (session.Stat, watches, error) {
	exists, stat, watch, err := inc.ExistsW(ctx, l.path)
	if err != nil {
		return session.Stat{}, watches{}, err
	}
	if !exists {
		watch.Stop()
		return session.Stat{}, watches{}, fmt.Errorf("%w: %s", ErrLost, l.path)
	}
	data, _, number, err := inc.GetW(ctx, l.semaphore.path)
	switch {
	case errors.Is(err, session.ErrNoNode):
		err = fmt.Errorf("%w: %s", ErrLost, l.semaphore.path)
	case err == nil && l.semaphore.differs(data) && !l.off.Off(sabotage.NumberWatched):
		number.Stop()
		err = l.semaphore.disagree(data)
	}
	if err != nil {
		watch.Stop()
		return session.Stat{}, watches{}, err
	}
	return stat, watches{watch, number}, nil
}

// abandon begins to delete the znode in the background, also after ctx has ended.
func (l *lease) abandon(ctx context.Context) {
	l.remove.Do(func() {
		go func() {
			defer close(l.gone)
			l.removeAll(context.WithoutCancel(ctx))
		}()
	})
}

// removeAll deletes the znode until it is gone or its session is over.
func (l *lease) removeAll(life context.Context) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := l.inc.Delete(life, l.path, -1)
		if errors.Is(err, session.ErrUncertain) {
			// No other znode ever has this name, so what stands after a Sync is ours.
			var stands bool
			if stands, err = l.find(life); err == nil && stands {
				continue
			}
		}
		if err == nil || errors.Is(err, session.ErrNoNode) || over(err) {
			return
		}
		l.semaphore.log.WarnContext(life, "lease not removed yet", "node", l.path, "error", err)
		<-time.After(pause)
	}
}

// removeUnsure removes what make has perhaps made, as soon as the server lets us see it.
func (l *lease) removeUnsure(life context.Context) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		stands, err := l.find(life)
		if err == nil && stands {
			l.removeAll(life)
		}
		if err == nil || over(err) {
			return
		}
		l.semaphore.log.WarnContext(life, "not known yet whether a lease was made", "node", l.path, "error", err)
		<-time.After(pause)
	}
}

// over reports whether err says that the session of an incarnation has ended, and its
// ephemeral znodes with it.
func over(err error) bool {
	return errors.Is(err, session.ErrSessionExpired) || errors.Is(err, session.ErrClosed) ||
		errors.Is(err, session.ErrAuthFailed)
}
