package barrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// The pause between two tries to remove a znode that can't be removed.
const (
	minPause = 100 * time.Millisecond
	maxPause = time.Second
)

// errForeign says that the znode to be made stands already and is of another session:
// of an earlier one of ours, as nobody else knows the name.
var errForeign = errors.New("barrier: znode is of another session")

// node is a member's znode in one session.
type node struct {
	inc  *session.Incarnation // of the session that owns it
	path string
	data []byte
	log  *slog.Logger

	once sync.Once
	gone chan struct{} // closed when it is proved that the znode does not exist
}

// create makes the znode, or finds it made. The requests do not end with ctx, because one
// that was given up may still be carried out: they go on in the background, and what they
// have made, or may have made, is removed there. After an error gone will be closed.
func (n *node) create(ctx context.Context) error {
	results := make(chan error)
	go func() {
		life := context.WithoutCancel(ctx)
		err := n.make(life, ctx)
		select {
		case results <- err:
			if err == nil {
				return // the caller has it
			}
		case <-ctx.Done():
		}
		if err == nil || errors.Is(err, session.ErrUncertain) {
			n.removeAll(life)
		}
		close(n.gone)
	}()
	select {
	case err := <-results:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// make asks with life and tries again only while ctx lasts. After an error no znode of
// this session stands, unless it wraps [session.ErrUncertain]: then the server did not let us see.
func (n *node) make(life, ctx context.Context) error {
	for {
		_, err := n.inc.Create(life, n.path, n.data, session.Ephemeral)
		switch {
		case errors.Is(err, session.ErrUncertain), errors.Is(err, session.ErrNodeExists):
			mine, err := n.look(life)
			switch {
			case err != nil && !errors.Is(err, errForeign) && !over(err):
				return fmt.Errorf("%w: no look at %s after its create: %w", session.ErrUncertain, n.path, err)
			case mine || err != nil:
				return err
			}
		case errors.Is(err, session.ErrNoNode) && !sabotage.Of(life).Off(sabotage.EnsureAgain):
			err := n.inc.EnsurePath(life, parentOf(n.path))
			if err != nil && !errors.Is(err, session.ErrUncertain) { // if uncertain, the next create shows it
				return err
			}
		default:
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// look reports whether the znode stands. The requests before have returned, and the Sync is
// behind them: what is not seen now does not appear later.
func (n *node) look(life context.Context) (bool, error) {
	if err := n.inc.Sync(life, parentOf(n.path)); err != nil && !errors.Is(err, session.ErrNoNode) {
		return false, err
	}
	exists, stat, err := n.inc.Exists(life, n.path)
	if err == nil && exists && stat.EphemeralOwner != n.inc.SessionID() {
		err = errForeign
	}
	return exists && err == nil, err
}

// wait waits until the znode is proved gone.
func (n *node) wait(ctx context.Context) error {
	select {
	case <-n.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// abandon begins to delete the znode in the background. It does not block.
func (n *node) abandon(ctx context.Context) {
	n.once.Do(func() {
		go func() {
			defer close(n.gone)
			n.removeAll(context.WithoutCancel(ctx))
		}()
	})
}

// vanished says that the znode was seen to be gone, or that its session is over. Its name may
// be used again from now on: it must not be deleted any more.
func (n *node) vanished() { n.once.Do(func() { close(n.gone) }) }

// removeAll deletes the znode until it is gone or its session is over. Nobody makes it
// meanwhile: the handle waits for that.
func (n *node) removeAll(life context.Context) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := n.inc.Delete(life, n.path, -1)
		if errors.Is(err, session.ErrUncertain) {
			mine, lookErr := n.look(life)
			if !mine && lookErr == nil {
				return
			}
			if lookErr != nil {
				err = lookErr
			}
		}
		if err == nil || errors.Is(err, session.ErrNoNode) || errors.Is(err, errForeign) || over(err) {
			return
		}
		n.log.WarnContext(life, "member not removed yet", "path", n.path, "error", err)
		<-time.After(pause)
	}
}

// over reports whether err says that the session of an incarnation has ended, and its
// ephemeral znodes with it.
func over(err error) bool {
	return errors.Is(err, session.ErrSessionExpired) || errors.Is(err, session.ErrClosed) ||
		errors.Is(err, session.ErrAuthFailed)
}
