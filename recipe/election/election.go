package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Options of an [Election]. The zero value works.
type Options struct {
	// Identifier is the data of our candidates: who we are, for those who look. It is
	// UTF-8; kazoo shows it in contenders(). Default: empty.
	Identifier string

	// Logger is told what can't be returned as an error, and who is in front of a candidate that waits
	// for long. With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// Election is one election. It may be used by several goroutines.
type Election struct {
	session *session.Session
	lock    *lock.Lock
}

// New returns a handle on the election at path. It checks its arguments and does no
// I/O. The session must be running for the other methods to succeed.
func New(s *session.Session, path string, opts Options) (*Election, error) {
	l, err := lock.New(s, path, lock.Options{Identifier: opts.Identifier, Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	return &Election{session: s, lock: l}, nil
}

var _ recipe.Hold = (*lock.Held)(nil) // what [Hold] returns

// ErrNoFunction says that Run was given no function.
var ErrNoFunction = errors.New("election: no function to lead with")

// Run waits until we are elected, calls lead, and returns what it returns. Lead's context
// ends when we may not lead any more, or with ctx. It has ctx's values, and [Hold] finds
// the hold in it. Whatever lead does then, nobody follows before it returns, except
// when the session is over.
//
// Before Run returns what lead has returned, it waits until our candidate is gone, for as long
// as ctx lasts: while no server can be reached, until ctx ends. The removal goes on in the
// background then. Who can't wait ends ctx when lead has returned.
//
// When ctx ends before we are elected, lead is not called, and the error wraps ctx's cause;
// it is a [*recipe.BlockedError] that names the leader if one was seen.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if lead == nil {
		return fmt.Errorf("election: run %s: %w", e.lock.Path(), ErrNoFunction)
	}
	held, err := e.lock.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	defer func() { _ = held.Release(ctx) }() // goes on in the background when ctx has ended
	err, _ = hold.Under(ctx, leadership{held}, lead)
	return err
}

// Leading reports whether a Run of this handle is elected and may be relied on to
// be so at this moment.
func (e *Election) Leading() bool { return e.lock.Held() }

// Contenders returns who leads and who waits to, in their order.
func (e *Election) Contenders(ctx context.Context) ([]lock.Contender, error) {
	list, err := e.lock.Contenders(ctx)
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	return list, nil
}

// Hold returns the hold on the leadership under which a function was called by
// [Election.Run] with ctx, for its Token, Node and Valid; nil when ctx has none. It is
// released by Run.
func Hold(ctx context.Context) *lock.Held { return hold.From[leadership](ctx).Held }

// leadership is the hold of a Run, which is not that of a lock that lead may take besides.
type leadership struct{ *lock.Held }
