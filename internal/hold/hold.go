package hold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
)

// ErrGone says that the znode which was to be held does not stand.
var ErrGone = errors.New("hold: znode is gone")

// Options say what a [Hold] is on.
type Options struct {
	Session     *session.Session     // kept open until the hold is released
	Incarnation *session.Incarnation // the one in which the znode was seen to be ours
	Path        string               // of the znode
	Lasting     bool                 // the znode is persistent: the hold outlives trust and sessions
	Lost        error                // the cause of a hold whose znode is gone, or can't be looked after
}

// Hold is a hold on what a znode stands for. Its context ends when that can't be trusted to be ours any more.
type Hold struct {
	opts  Options
	token int64           // czxid of the znode
	ctx   context.Context //nolint:containedctx // a hold is a lifetime
	end   context.CancelCauseFunc
	letGo func() // lets the session close
	once  sync.Once
}

// New makes a hold of a znode. It returns nil when the incarnation is not trusted any more, and [ErrGone] when the
// znode does not stand.
func New(ctx context.Context, opts Options) (*Hold, error) {
	exists, stat, watch, err := opts.Incarnation.ExistsW(ctx, opts.Path)
	if err != nil {
		return nil, err
	}
	if !exists {
		watch.Stop()
		return nil, ErrGone
	}
	return Of(ctx, opts, stat, watch), nil
}

// Of is [New] for a znode that was just read, with a watch.
func Of(ctx context.Context, opts Options, stat session.Stat, watch *session.Watch) *Hold {
	if !opts.Incarnation.Trusted() {
		watch.Stop()
		return nil
	}
	h := &Hold{opts: opts, token: stat.Czxid, letGo: opts.Session.Hold()}
	life := opts.Incarnation.Context()
	if opts.Lasting {
		life = context.WithoutCancel(ctx)
	}
	h.ctx, h.end = context.WithCancelCause(life)
	h.Guard(watch, h.look)
	return h
}

// Guard looks again whenever a watch says so, in the background, and ends the hold with the error of a look. A look
// returns the next watch.
func (h *Hold) Guard(watch *session.Watch, look func(ctx context.Context) (*session.Watch, error)) {
	go func() {
		for {
			select {
			case <-watch.C():
			case <-h.ctx.Done():
			}
			watch.Stop()
			if h.ctx.Err() != nil {
				return
			}
			next, err := look(h.ctx)
			if err != nil { // also when the hold has ended
				h.end(err)
				return
			}
			watch = next
		}
	}()
}

// look asks whether the znode still stands, in the session that it lives in, or in whatever session there is if the hold
// is lasting.
func (h *Hold) look(ctx context.Context) (*session.Watch, error) {
	for {
		inc := h.opts.Incarnation
		if h.opts.Lasting {
			var err error
			if inc, err = h.opts.Session.Incarnation(ctx); err != nil {
				return nil, h.Unseen(err)
			}
		}
		exists, stat, watch, err := inc.ExistsW(ctx, h.opts.Path)
		switch {
		case h.opts.Lasting && errors.Is(err, session.ErrSessionExpired):
			continue
		case err != nil:
			return nil, h.Unseen(err)
		case !exists || stat.Czxid != h.token:
			watch.Stop()
			return nil, fmt.Errorf("%w: %s", h.opts.Lost, h.opts.Path)
		}
		return watch, nil
	}
}

// Unseen is the cause of a hold that can't be looked after.
func (h *Hold) Unseen(err error) error {
	return fmt.Errorf("%w: can't look after %s: %w", h.opts.Lost, h.opts.Path, err)
}

// Context is the hold.
func (h *Hold) Context() context.Context { return h.ctx }

// Valid reports whether the hold may be relied on at this moment.
func (h *Hold) Valid() bool {
	return h.ctx.Err() == nil && (h.opts.Lasting || h.opts.Incarnation.Trusted())
}

// Node returns the path of the znode.
func (h *Hold) Node() string { return h.opts.Path }

// Token returns the czxid of the znode.
func (h *Hold) Token() int64 { return h.token }

// Incarnation returns the incarnation in which the hold was made.
func (h *Hold) Incarnation() *session.Incarnation { return h.opts.Incarnation }

// Release ends the hold, the first time that it is called: then it begins to give up what is held. The session may close
// from then on, for all that the hold is concerned.
func (h *Hold) Release(cause error, begin func()) {
	h.once.Do(func() {
		h.end(cause)
		begin()
		h.letGo()
	})
}

// Text returns data as valid UTF-8 of at most limit bytes; 0 is no limit.
func Text(data []byte, limit int) string {
	if limit > 0 && len(data) > limit {
		data = data[:limit]
	}
	return strings.ToValidUTF8(string(data), "")
}

// Blocked returns err if it is the error of a call with ctx that was blocked itself. Errors that err wraps are not looked at, nor
// the cause of ctx's end: they can be of another call, which has them still.
func Blocked(ctx context.Context, err error) (blocked *recipe.BlockedError, ok bool) {
	blocked, ok = err.(*recipe.BlockedError)                   //nolint:errorlint // only itself
	return blocked, ok && error(blocked) != context.Cause(ctx) //nolint:errorlint // only itself
}

// Identifier returns the data of a znode in the way, for a [recipe.BlockedError].
func Identifier(data []byte) string { return Text(data, 256) }
