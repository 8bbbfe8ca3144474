package recipetest

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// ReleasedHold is a hold for BesideItsRelease.
type ReleasedHold interface {
	Releaser
	Node() string
}

// BesideItsRelease calls again, which acquires what h holds, while the release of h goes on, because the server does not delete
// h's znode. The server loses the reply to the first request for which makes returns true: a request that creates the next znode.
// Then the server deletes h's znode. From then on the client receives nothing, so it does not learn the outcome; the caller must
// heal its link.
func BesideItsRelease(tb testing.TB, srv *zktest.Server, link *zktest.Client, h ReleasedHold, makes func(r zktest.Request) bool, again func()) {
	tb.Helper()
	var lost, free atomic.Bool
	srv.SetHook(func(r *zktest.Request) zktest.Action {
		switch {
		case r.Op == zktest.OpDelete && r.Path == h.Node() && !free.Load():
			return zktest.Action{Err: zktest.ErrThrottled}
		case makes(*r) && !lost.Swap(true):
			return zktest.Action{LoseReply: true}
		}
		return zktest.Action{}
	})
	ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
	defer cancel()
	if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
		tb.Fatalf("Release returned %v before the znode was deleted", err)
	}
	again()
	<-time.After(5 * time.Second)
	link.BlackHole(zktest.ToClient)
	tb.Cleanup(link.Heal)
	free.Store(true)
	<-time.After(2 * time.Second)
	tb.Cleanup(func() {
		if !lost.Load() {
			tb.Error("no reply was lost: nothing was tested")
		}
	})
}

// Relied is a hold that reports at any moment whether it is valid.
type Relied interface {
	Hold
	Valid() bool
}

// trustEnds is a log handler that calls check when a session logs "trust lost", which is before it cancels the contexts.
type trustEnds struct {
	slog.Handler

	check func()
}

func (h trustEnds) Enabled(context.Context, slog.Level) bool { return true }
func (h trustEnds) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "trust lost" {
		h.check()
	}
	return nil
}
func (h trustEnds) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h trustEnds) WithGroup(string) slog.Handler      { return h }

// InvalidBeforeItsContextEnds checks that a hold that take acquires is no longer valid at a moment when trust has ended and the
// hold's context has not: code that checks the context alone is late.
func InvalidBeforeItsContextEnds(tb testing.TB, nw *zktest.Network, take func(s *session.Session) Relied) {
	tb.Helper()
	const client = "loses trust"
	type state struct{ live, valid bool }
	holds, states := make(chan Relied, 1), make(chan state, 1)
	s, _ := Stoppable(tb, nw, client, session.Options{Logger: slog.New(trustEnds{check: func() {
		select {
		case h := <-holds:
			states <- state{live: h.Context().Err() == nil, valid: h.Valid()}
		default:
		}
	}})})
	h := take(s)
	if !h.Valid() {
		tb.Error("a new hold is not valid")
	}
	holds <- h
	nw.Client(client).BlackHole(zktest.Both)
	defer nw.Client(client).Heal()
	select {
	case at := <-states:
		if !at.live {
			tb.Error("the context has ended already: nothing was tested")
		}
		if at.valid {
			tb.Error("the hold is valid after the end of trust")
		}
	case <-time.After(time.Minute):
		tb.Error("trust does not end")
	}
}
