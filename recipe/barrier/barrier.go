package barrier

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
)

// Barrier is a handle on one barrier. It may be used by several goroutines.
type Barrier struct {
	session *session.Session
	path    string
	log     *slog.Logger
}

// Options of a [Barrier]. The zero value works.
type Options struct {
	// Logger gets a warning from a Wait that lasts for long, with the znode that it waits for: after about half a minute, and
	// then whenever the time has doubled.
	// With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// New returns a handle on the barrier at path. It checks its arguments and does no I/O. The session must be running for the
// methods to succeed.
func New(s *session.Session, path string, opts Options) (*Barrier, error) {
	if err := check(s, path); err != nil {
		return nil, err
	}
	opts.Logger = defaultlog.Or(opts.Logger)
	return &Barrier{session: s, path: path, log: opts.Logger}, nil
}

func check(s *session.Session, path string) error {
	if s == nil {
		return operr.New("barrier", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return operr.New("barrier", "", "", err)
	}
	if path == "/" {
		return operr.New("barrier", "", "", errors.New("path /: the root always exists"))
	}
	return nil
}

// Create sets the barrier up, if it does not exist already. If the error wraps [session.ErrUncertain] the barrier may or may not
// have been set up. Create does not repeat the request then, because somebody may have removed the barrier since.
func (b *Barrier) Create(ctx context.Context) error {
	return b.do(ctx, "create", b.create)
}

// do calls f in the newest session, and again if f ended because the session has expired.
func (b *Barrier) do(ctx context.Context, op string, f func(context.Context, *session.Incarnation) error) error {
	for {
		inc, err := b.session.Incarnation(ctx)
		if err == nil {
			err = f(ctx, inc)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, session.ErrSessionExpired) && !errors.Is(err, session.ErrUncertain) && ctx.Err() == nil:
		default:
			if _, ok := hold.Blocked(ctx, err); ok {
				return err
			}
			return operr.New("barrier", op, b.path, err)
		}
	}
}

func (b *Barrier) create(ctx context.Context, inc *session.Incarnation) error {
	parent := parentOf(b.path)
	// Without a Sync, a server that lags shows a barrier that was removed before the call.
	if err := inc.Sync(ctx, parent); err != nil && !errors.Is(err, session.ErrNoNode) {
		return err
	}
	for {
		if exists, _, err := inc.Exists(ctx, b.path); err != nil || exists {
			return err
		}
		exists, before, err := inc.Exists(ctx, parent)
		if err != nil {
			return err
		}
		if exists {
			_, err = inc.Create(ctx, b.path, nil, session.Persistent)
		} else {
			err = session.ErrNoNode
		}
		switch {
		case err == nil || errors.Is(err, session.ErrNodeExists):
			return nil
		case errors.Is(err, session.ErrNoNode):
			if err := inc.EnsurePath(ctx, parent); err != nil && (!errors.Is(err, session.ErrUncertain) || ctx.Err() != nil) {
				return err
			}
		case errors.Is(err, session.ErrUncertain):
			done, again := b.created(ctx, inc, before)
			if done {
				return nil
			}
			if !again {
				return err
			}
		default:
			return err
		}
	}
}

// created reads, after a lost reply, whether the barrier exists. If not, created reports whether the create may be repeated: the
// parent is as it was before, so surely no barrier was set up since.
func (b *Barrier) created(ctx context.Context, inc *session.Incarnation, before session.Stat) (done, again bool) {
	if err := inc.Sync(ctx, b.path); err != nil && !errors.Is(err, session.ErrNoNode) {
		return false, false
	}
	exists, _, err := inc.Exists(ctx, b.path)
	if err != nil || exists {
		return err == nil, false
	}
	exists, now, err := inc.Exists(ctx, parentOf(b.path))
	return false, err == nil && exists && now.Pzxid == before.Pzxid && now.Czxid == before.Czxid
}

// Remove removes the barrier and reports whether there was one. When Remove returns nil the barrier that it found is gone.
func (b *Barrier) Remove(ctx context.Context) (bool, error) {
	var found session.Stat
	var there bool
	err := b.do(ctx, "remove", func(ctx context.Context, inc *session.Incarnation) error {
		for {
			if err := inc.Sync(ctx, parentOf(b.path)); err != nil && !errors.Is(err, session.ErrNoNode) {
				return err
			}
			exists, now, err := inc.Exists(ctx, b.path)
			if err != nil || !exists {
				return err
			}
			if !there {
				there, found = true, now
			}
			if now.Czxid != found.Czxid {
				return nil // the barrier is gone, and another was set up
			}
			err = inc.Delete(ctx, b.path, -1)
			if errors.Is(err, session.ErrNoNode) {
				return nil
			}
			if !errors.Is(err, session.ErrUncertain) || ctx.Err() != nil {
				return err
			}
			// The delete has returned, so it does not happen later. Read the barrier before it is repeated.
		}
	})
	if err != nil {
		return false, err
	}
	return there, nil
}

// Wait waits until the barrier is deleted. It returns at once if no barrier exists. When ctx ends the error is a
// [*recipe.BlockedError].
func (b *Barrier) Wait(ctx context.Context) error {
	var seen int64
	var patience seqnode.Patience
	waits := func(blocker seqnode.Blocker) { warnWaiting(ctx, b.log, b.path, &patience, blocker) }
	return b.do(ctx, "wait for", func(ctx context.Context, inc *session.Incarnation) error {
		if err := inc.Sync(ctx, parentOf(b.path)); err != nil && !errors.Is(err, session.ErrNoNode) {
			return err
		}
		gone, err := awaitGone(ctx, b.session, b.path, b.path, &seen, waits)
		if err == nil && !gone {
			err = session.ErrSessionExpired
		}
		return err
	})
}

// awaitGone waits until the znode at path with czxid *seen is gone. If *seen is 0 awaitGone sets it to the czxid of the znode
// that it reads first. It returns false when the session has expired. Before each pause it calls waits with the znode.
func awaitGone(
	ctx context.Context, s *session.Session, barrier, path string, seen *int64, waits func(b seqnode.Blocker),
) (bool, error) {
	for last := (*recipe.BlockedError)(nil); ; {
		inc, err := s.Incarnation(ctx)
		var data []byte
		var stat session.Stat
		var watch *session.Watch
		if err == nil {
			data, stat, watch, err = seqnode.ReadW(ctx, inc, path)
		}
		switch {
		case errors.Is(err, session.ErrNoNode):
			return true, nil
		case errors.Is(err, session.ErrSessionExpired) && ctx.Err() == nil:
			return false, nil
		case err != nil:
			if last != nil && ctx.Err() != nil {
				last.Err = context.Cause(ctx)
				return false, last
			}
			return false, err
		}
		if *seen == 0 {
			*seen = stat.Czxid
		}
		if *seen != stat.Czxid {
			watch.Stop()
			return true, nil
		}
		last = blocked(barrier, path, data, nil)
		waits(seqnode.Blocker{Path: path, Data: data, Stat: stat})
		select {
		case <-watch.C():
		case <-ctx.Done():
			watch.Stop()
			last.Err = context.Cause(ctx)
			return false, last
		}
	}
}

// warnWaiting logs a warning with the znode that is waited for, if the patience is over.
func warnWaiting(ctx context.Context, log *slog.Logger, barrier string, p *seqnode.Patience, b seqnode.Blocker) {
	if waited, over := p.Over(); over {
		log.WarnContext(ctx, "still waiting", "path", barrier, "waited", waited, "blocker", b)
	}
}

// blocked returns the error of a wait that ended, with the znode that was waited for.
func blocked(barrier, blocker string, data []byte, err error) *recipe.BlockedError {
	return &recipe.BlockedError{Recipe: "barrier", Path: barrier, Blocker: blocker, Identifier: hold.Identifier(data), Err: err}
}

func parentOf(path string) string {
	if at := strings.LastIndexByte(path, '/'); at > 0 {
		return path[:at]
	}
	return "/"
}
