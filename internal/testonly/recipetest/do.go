package recipetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Doer is a handle that runs functions under its hold.
type Doer interface {
	Do(ctx context.Context, fn func(ctx context.Context) error) error
}

// Done is a test of a recipe's Do.
type Done struct {
	New  func(s *session.Session) Doer         // returns a handle in a session
	Hold func(ctx context.Context) recipe.Hold // returns the hold in a function's context; nil if there is none
	Lost error                                 // the cause with which a hold ends whose znode is gone
}

// Found returns a Hold for Done from the recipe's own function, which returns a nil pointer if there is no hold.
func Found[H interface {
	comparable
	recipe.Hold
}](find func(ctx context.Context) H) func(ctx context.Context) recipe.Hold {
	return func(ctx context.Context) recipe.Hold {
		var none H
		if h := find(ctx); h != none {
			return h
		}
		return nil
	}
}

// Run checks that Do calls its function under a hold. The function's context ends with the hold, and with the caller's context,
// at once even if no server can be reached. The znode is gone when Do returns. Run belongs in a bubble.
func (d Done) Run(tb testing.TB, srv *zktest.Server, nw *zktest.Network) {
	tb.Helper()
	const client = "does"
	r := &doing{TB: tb, Done: d, doer: d.New(Session(tb, nw, client)), srv: srv, link: nw.Client(client)}
	r.returnsTheError()
	r.endsWithTheHold()
	r.endsWithTheCaller()
	if held := d.Hold(tb.Context()); held != nil {
		tb.Errorf("a context that no Do has made has the hold %v", held)
	}
}

// doing is one run of Done.
type doing struct {
	testing.TB
	Done

	doer Doer
	srv  *zktest.Server
	link *zktest.Client
	node string // the znode of the last hold
}

// returnsTheError checks that Do returns the error of its function, and refuses to go without one.
func (r *doing) returnsTheError() {
	r.Helper()
	if err := r.doer.Do(r.Context(), nil); !errors.Is(err, recipe.ErrNoFunction) || !strings.Contains(err.Error(), ": do /") {
		r.Errorf("Do without a function returned %v", err)
	}
	why := errors.New("not done")
	err := r.doer.Do(r.Context(), func(ctx context.Context) error {
		r.checkHeld(ctx)
		return why
	})
	if err != why { //nolint:errorlint // the same value
		r.Errorf("Do returned %v, not the error of its function", err)
	}
	r.checkGone()
}

// endsWithTheHold deletes the znode under a function.
func (r *doing) endsWithTheHold() {
	r.Helper()
	err := r.doer.Do(r.Context(), func(ctx context.Context) error {
		r.checkHeld(ctx)
		if err := r.srv.Delete(r.node); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, r.Lost) || errors.Is(err, context.Canceled) {
		r.Errorf("the hold was lost, and Do returned %v", err)
	}
}

// endsWithTheCaller cancels the caller's context while no server can be reached, and calls Do with it again.
func (r *doing) endsWithTheCaller() {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var canceled time.Time
	err := r.doer.Do(ctx, func(ctx context.Context) error {
		r.checkHeld(ctx)
		r.link.BlackHole(zktest.Both)
		canceled = time.Now()
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if took := time.Since(canceled); err != nil || took > 0 {
		r.Errorf("canceled while the function ran: Do returned %v after %v", err, took)
	}
	called := false
	err = r.doer.Do(ctx, func(context.Context) error { called = true; return nil })
	if !errors.Is(err, context.Canceled) || called {
		r.Errorf("canceled before: Do returned %v; it called the function: %v", err, called)
	}
	r.link.Heal()
	<-time.After(time.Minute)
	r.checkGone()
}

// checkHeld checks that a function's context has a valid hold whose znode exists.
func (r *doing) checkHeld(ctx context.Context) {
	r.Helper()
	held := r.Hold(ctx)
	r.node = held.Node()
	if _, _, exists := r.srv.Get(r.node); !exists || !held.Valid() {
		r.Errorf("the hold on %s is valid: %v; its znode exists: %v", r.node, held.Valid(), exists)
	}
}

// checkGone checks that the znode of the last hold is gone.
func (r *doing) checkGone() {
	r.Helper()
	if _, _, exists := r.srv.Get(r.node); exists {
		r.Errorf("%s exists after Do", r.node)
	}
}
