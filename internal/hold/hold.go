package hold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// ErrGone says that the znode of a new hold does not exist.
var ErrGone = errors.New("znode is gone")

// Options describe the znode of a [Hold].
type Options struct {
	Session     *session.Session     // kept open until the hold is released
	Incarnation *session.Incarnation // the incarnation in which the znode was seen to be this process's
	Path        string               // path of the znode
	Lasting     bool                 // whether the znode is persistent: then the hold outlives trust and sessions
	Lost        error                // wrapped by the cause of a hold whose znode was removed or can't be watched
}

// Hold is a hold on what a znode represents. Its context ends when the znode can't be trusted any more to be this process's.
type Hold struct {
	opts  Options
	token int64           // czxid of the znode
	ctx   context.Context //nolint:containedctx // a hold is a lifetime
	end   context.CancelCauseFunc
	letGo func() // lets the session close
	once  sync.Once
}

// New returns a hold on a znode, nil if the incarnation is not trusted any more, or [ErrGone] if the znode does not exist.
func New(ctx context.Context, opts Options) (*Hold, error) {
	exists, stat, watch, err := opts.Incarnation.ExistsW(ctx, opts.Path)
	if err != nil {
		return nil, err
	}
	if !exists {
		watch.Stop()
		return nil, ErrGone
	}
	return Of(opts, stat, watch), nil
}

// Of is [New] for a znode that the caller has just read with a watch.
func Of(opts Options, stat session.Stat, watch *session.Watch) *Hold {
	if !opts.Incarnation.Trusted() {
		watch.Stop()
		return nil
	}
	h := &Hold{opts: opts, token: stat.Czxid, letGo: opts.Session.KeepOpen()}
	life := opts.Incarnation.Context()
	if opts.Lasting {
		life = context.WithoutCancel(life)
	}
	h.ctx, h.end = context.WithCancelCause(life)
	h.Guard(watch, h.look)
	return h
}

// Guard calls look in the background whenever the watch fires. Look returns the next watch, or an error, which ends the hold.
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
			if err != nil { // an error after the end of the hold changes nothing
				h.end(err)
				return
			}
			watch = next
		}
	}()
}

// look checks that the znode still exists: in its own session, or in the newest one if the hold is lasting.
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
			return nil, fmt.Errorf("%w: %s was deleted", h.opts.Lost, h.opts.Path)
		}
		return watch, nil
	}
}

// Unseen returns the cause of a hold whose znode can't be watched because of err.
func (h *Hold) Unseen(err error) error {
	return operr.Because(h.opts.Lost, operr.New("", "watch", h.opts.Path, err))
}

// Context returns the context that ends with the hold.
func (h *Hold) Context() context.Context { return h.ctx }

// Valid reports whether the hold may be relied on at this moment.
func (h *Hold) Valid() bool {
	return h.ctx.Err() == nil && (h.opts.Lasting || h.opts.Incarnation.Trusted())
}

// Node returns the path of the znode.
func (h *Hold) Node() string { return h.opts.Path }

// Token returns the czxid of the znode.
func (h *Hold) Token() int64 { return h.token }

// Incarnation returns the incarnation in which the hold was taken.
func (h *Hold) Incarnation() *session.Incarnation { return h.opts.Incarnation }

// Release ends the hold with cause, calls begin, which starts the removal of the znode, and lets the session close. Calls after
// the first do nothing.
func (h *Hold) Release(cause error, begin func()) {
	h.once.Do(func() {
		h.end(cause)
		begin()
		h.letGo()
	})
}

// Text returns the first limit bytes of data without invalid UTF-8. A limit of 0 means all of data.
func Text(data []byte, limit int) string {
	if limit > 0 && len(data) > limit {
		data = data[:limit]
	}
	return strings.ToValidUTF8(string(data), "")
}

// Identifier returns the data of a blocking znode as a [recipe.BlockedError] shows it.
func Identifier(data []byte) string { return Text(data, 256) }
