package election

import (
	"context"
	"log/slog"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Options configure an [Election]. The zero value works.
type Options struct {
	// Identifier is the data of the candidates, for people and for kazoo's contenders(). It is UTF-8. Default: empty.
	Identifier string

	// Logger gets what can't be returned as an error, and the leader while a candidate waits for long. With nil, warnings and
	// errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// Election is a handle on one election. Several goroutines may use it.
type Election struct {
	session *session.Session
	lock    *lock.Lock
	errs    *errlog.Log
}

// New returns a handle on the election at path. It checks its arguments and does no I/O. The session must be running for the
// methods to succeed.
func New(s *session.Session, path string, opts Options) (*Election, error) {
	l, err := lock.New(s, path, lock.Options{Identifier: opts.Identifier, Logger: opts.Logger})
	if err != nil {
		return nil, operr.New("election", "", "", err)
	}
	return &Election{session: s, lock: l, errs: errlog.New(defaultlog.Or(opts.Logger).With("component", "election", "path", path))}, nil
}

var _ recipe.Hold = (*lock.Held)(nil) // what [Hold] returns

// Run creates a candidate, waits until it is elected, calls lead, and returns lead's error. After a lost leadership Run returns
// nil if lead returned nil. Lead's context ends when the candidate may not lead any more, or with ctx. It has ctx's values, and
// [Hold] finds the hold in it. No other candidate leads before lead returns, unless the session is over.
//
// When lead has returned, Run waits until its candidate is deleted or ctx ends. When ctx ends first, the removal goes on in the
// background. So a caller that can't wait ends ctx when lead has returned.
//
// Once a candidate of this handle was created, Run outlasts what the servers refuse, by an ACL or a quota for instance, before
// the candidate is elected: it logs the error and creates a candidate again, after pauses that grow to 5 s. A refusal before that
// is an error.
//
// When ctx ends before the candidate is elected, lead is not called, and the error wraps ctx's cause. The error also wraps a
// [*recipe.BlockedError] that names the leader if one was seen.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if lead == nil {
		return hold.Wrap(ctx, "election", "run", e.lock.Path(), recipe.ErrNoFunction)
	}
	held, err := e.acquire(ctx)
	if err != nil {
		return hold.Wrap(ctx, "election", "run", e.lock.Path(), err)
	}
	defer func() { _ = held.Release(ctx) }() // when ctx has ended, the removal goes on in the background
	err, _ = hold.Under(ctx, leadership{held}, lead)
	return err
}

// acquire waits until a candidate is elected.
func (e *Election) acquire(ctx context.Context) (*lock.Held, error) {
	refusals := hold.NewRefusals(e.errs, "candidate")
	for {
		held, err := e.lock.Acquire(ctx)
		if err == nil {
			refusals.Over()
			return held, nil
		}
		if !e.lock.Queued() || !refusals.Outlast(ctx, err) {
			return nil, err
		}
	}
}

// Leading reports whether a Run of this handle leads and its leadership may be relied on at this moment.
func (e *Election) Leading() bool { return e.lock.Held() }

// Contenders returns the leader and then the candidates that wait, in their order.
func (e *Election) Contenders(ctx context.Context) ([]lock.Contender, error) {
	list, err := e.lock.Contenders(ctx)
	if err != nil {
		return nil, hold.Wrap(ctx, "election", "list", e.lock.Path(), err)
	}
	return list, nil
}

// Hold returns the hold of the leadership under which [Election.Run] called a function with ctx, for its Token, Node and Valid;
// nil if ctx has none. Run releases it: do not call its Release, or the next candidate leads while lead still runs.
func Hold(ctx context.Context) *lock.Held { return hold.From[leadership](ctx).Held }

// leadership is the hold of a Run. As a type of its own it differs from the hold of a lock that lead acquires.
type leadership struct{ *lock.Held }
