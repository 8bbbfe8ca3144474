package recipetest

import (
	"context"
	"errors"
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

// Done is what a test of a recipe's Do has.
type Done struct {
	New  func(s *session.Session) Doer         // returns a handle in a session
	Hold func(ctx context.Context) recipe.Hold // finds the hold in a function's context; nil if there is none
	Lost error                                 // the cause of a hold whose znode is gone
}

// Found returns Hold for Done.
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

// Run checks that a function runs under a hold: it ends with its caller, at once though no server can be reached, and with the hold; the
// znode is gone when Do returns. It belongs in a bubble.
func (d Done) Run(tb testing.TB, srv *zktest.Server, nw *zktest.Network) {
	tb.Helper()
	const client = "does"
	h := d.New(Session(tb, nw, client))
	node := ""
	under := func(ctx context.Context) {
		held := d.Hold(ctx)
		node = held.Node()
		if _, _, stands := srv.Get(node); !stands || !held.Valid() {
			tb.Errorf("under a hold on %s that is not valid; it stands: %v", node, stands)
		}
	}
	gone := func() {
		tb.Helper()
		if _, _, stands := srv.Get(node); stands {
			tb.Errorf("%s stands", node)
		}
	}

	why := errors.New("not done")
	if err := h.Do(tb.Context(), func(ctx context.Context) error { under(ctx); return why }); err != why { //nolint:errorlint // it is returned as it is
		tb.Errorf("fn's error: %v", err)
	}
	gone()

	err := h.Do(tb.Context(), func(ctx context.Context) error {
		under(ctx)
		if err := srv.Delete(node); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, d.Lost) || errors.Is(err, context.Canceled) {
		tb.Errorf("lost: %v", err)
	}

	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	var told time.Time
	err = h.Do(ctx, func(ctx context.Context) error {
		under(ctx)
		nw.Client(client).BlackHole(zktest.Both)
		told = time.Now()
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if took := time.Since(told); err != nil || took > 0 {
		tb.Errorf("told to end: %v after %v", err, took)
	}
	called := false
	if err := h.Do(ctx, func(context.Context) error { called = true; return nil }); !errors.Is(err, context.Canceled) || called {
		tb.Errorf("told to end before: %v, called: %v", err, called)
	}
	nw.Client(client).Heal()
	<-time.After(time.Minute)
	gone()
	if held := d.Hold(tb.Context()); held != nil {
		tb.Errorf("a hold out of nothing: %v", held)
	}
}
