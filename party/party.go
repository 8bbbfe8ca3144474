package party

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/session"
)

// Party watches a directory of members, and is one of them if it has a name.
type Party struct {
	sess *session.Session
	path string
	name string
	node string // path/name; "" for an observer
	data []byte
	log  *slog.Logger

	latest  *latest.Value[View] // nil before the first
	started atomic.Bool
	leaving atomic.Bool
	wake    chan struct{}      // tells the loop that leaving was set
	refresh chan chan struct{} // to the loop: read again, and close it when that is published
	left    chan struct{}      // closed when the znode is not ours any more, for good
	done    chan struct{}      // closed when Run has returned
}

// New returns a Party for the directory path. It validates and does nothing
// else; errors name the field. Run starts it.
func New(s *session.Session, path string, opts Options) (*Party, error) {
	if s == nil {
		return nil, errors.New("party: the session is nil")
	}
	if err := opts.validate(path); err != nil {
		return nil, fmt.Errorf("party: %w", err)
	}
	p := &Party{
		sess:    s,
		latest:  latest.New[View](nil),
		path:    path,
		name:    opts.Name,
		data:    slices.Clone(opts.Data),
		log:     defaultlog.Or(opts.Logger).With("component", "party", "path", path, "member", opts.Name),
		wake:    make(chan struct{}, 1),
		refresh: make(chan chan struct{}),
		left:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if opts.Name != "" {
		p.node = session.Join(path, opts.Name)
	}
	return p, nil
}

// Path returns the directory's path.
func (p *Party) Path() string { return p.path }

// Name returns the name of our member; "" for an observer.
func (p *Party) Name() string { return p.name }

// View returns the newest view, nil before the first. It never blocks.
func (p *Party) View() *View { return p.latest.Load() }

// Updates yields the newest view and then each newer one, until ctx ends or
// Run has returned. A slow reader skips views, but always comes to the latest.
func (p *Party) Updates(ctx context.Context) iter.Seq[*View] {
	return p.latest.Updates(ctx, p.done)
}

// publish makes view the newest one. Only Run's goroutine calls it.
func (p *Party) publish(view View) {
	old := p.latest.Load()
	if view.same(old) {
		view.Version, view.Members = old.Version, old.Members
		p.latest.Amend(&view)
		return
	}
	if old != nil {
		view.Version = old.Version
	}
	view.Version++
	p.latest.Store(&view)
	p.log.Debug("members changed", "version", view.Version, "members", len(view.Members), "present", view.Joined)
}

// Leave deletes our znode, waits until it is gone, and keeps it so: the Party
// goes on watching and does not join again, whatever Leave returns. It returns
// nil at once when there is nothing to leave. An error wraps the cause of ctx,
// or is ErrStopped.
func (p *Party) Leave(ctx context.Context) error {
	p.leaving.Store(true)
	if p.name == "" || !p.started.Load() {
		return nil // a Run that starts now sees leaving before it joins
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
	select {
	case <-p.left:
		return nil
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("party: leave %s: %w", p.node, context.Cause(ctx))
	}
	select {
	case <-p.left:
		return nil
	default:
		return fmt.Errorf("party: leave %s: %w", p.node, ErrStopped)
	}
}
