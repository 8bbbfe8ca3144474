package party

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Party watches a directory of members, and is one of them if it has a name.
type Party struct {
	sess *session.Session
	path string
	name string
	node string // path/name; "" for an observer
	data []byte // this member's record
	info []byte // the data of its entry
	log  *slog.Logger
	errs *errlog.Log

	rejoin  bool               // Options.Rejoin
	refused prometheus.Counter // refusals of the servers that did not end Run

	recordsPath string                      // Options.Records
	singly      func(members []Member) bool // Options.Singly; nil if members may always be known by their record's hash

	admit func(v *View) error // Options.Admit; nil if the member may always join

	static *Static     // Options.Static
	keep   atomic.Bool // whether Keep was called
	kept   atomic.Bool // what Kept returns

	latest  *latest.Value[View] // the newest view; nil before the first
	started atomic.Bool         // whether Run was called
	leaving atomic.Bool         // whether Leave was called
	wake    chan struct{}       // wakes the loop when leaving is set
	refresh chan chan struct{}  // asks the loop to read again; the loop closes the sent channel when the view is published
	left    chan struct{}       // closed when this member's znode is gone for good
	done    chan struct{}       // closed when Run returns
}

// New returns a Party for the directory path. It only checks its arguments; errors name the option. Run starts the Party.
func New(s *session.Session, path string, opts Options) (*Party, error) {
	if s == nil {
		return nil, operr.New("party", "", "", errors.New("session is nil"))
	}
	if err := opts.validate(path); err != nil {
		return nil, operr.New("party", "", "", err)
	}
	refused, err := newRefusals(opts.Registerer)
	if err != nil {
		return nil, operr.New("party", "", "", err)
	}
	log := defaultlog.Or(opts.Logger).With("component", "party", "path", path, "member", opts.Name)
	p := &Party{
		sess:   s,
		latest: latest.New[View](nil),
		path:   path,
		name:   opts.Name,
		data:   slices.Clone(opts.Data),
		info:   slices.Clone(opts.Info),
		singly: opts.Singly,
		admit:  opts.Admit,
		static: opts.Static,

		recordsPath: opts.Records,

		log:     log,
		errs:    errlog.New(log),
		rejoin:  opts.Rejoin,
		refused: refused,
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

// Name returns the member's name; "" for an observer.
func (p *Party) Name() string { return p.name }

// View returns the newest view, nil before the first. It never blocks.
func (p *Party) View() *View { return p.latest.Load() }

// Updates yields the newest view and then each newer one, until ctx ends or Run has returned. A slow reader misses some views,
// but always gets the latest.
func (p *Party) Updates(ctx context.Context) iter.Seq[*View] {
	return p.latest.Updates(ctx, p.done)
}

// publish makes view the newest view. Only Run's goroutine calls it.
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

// Leave deletes this member's znode and waits until it is gone. The Party goes on watching and does not join again, whatever
// Leave returns. Leave returns nil at once if the Party has no name or does not run. An error wraps the cause of ctx, or
// ErrStopped.
func (p *Party) Leave(ctx context.Context) error {
	p.leaving.Store(true)
	if p.name == "" || !p.started.Load() {
		return nil // a Run that starts now reads leaving before it joins
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
		return operr.New("party", "leave", p.node, context.Cause(ctx))
	}
	select {
	case <-p.left:
		return nil
	default:
		return operr.New("party", "leave", p.node, ErrStopped)
	}
}
