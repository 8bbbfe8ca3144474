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

// ReleasedHold is a hold of which BesideItsRelease knows the znode.
type ReleasedHold interface {
	Releaser
	Node() string
}

// BesideItsRelease has again acquire what h holds while the release of h goes on, because the server does not remove h's
// znode. The reply to the first request that makes another one is lost, and at last h's is removed. From then on
// the client hears nothing, so that it does not learn what that did; its link has to be healed.
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
		tb.Fatalf("released: %v", err)
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

// Relied is a hold that tells at any moment whether it may be relied on.
type Relied interface {
	Hold
	Valid() bool
}

// trustEnds calls look when a session logs that trust is lost, before it cancels the contexts.
type trustEnds struct {
	slog.Handler

	look func()
}

func (h trustEnds) Enabled(context.Context, slog.Level) bool { return true }
func (h trustEnds) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "trust lost" {
		h.look()
	}
	return nil
}
func (h trustEnds) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h trustEnds) WithGroup(string) slog.Handler      { return h }

// InvalidBeforeItsContextEnds checks that a hold of take is no longer valid at a moment when trust has ended and its
// context has not: code that goes by the context alone is late.
func InvalidBeforeItsContextEnds(tb testing.TB, nw *zktest.Network, take func(s *session.Session) Relied) {
	tb.Helper()
	const client = "loses trust"
	holds, verdicts := make(chan Relied, 1), make(chan [2]bool, 1)
	s, _ := Stoppable(tb, nw, client, session.Options{Logger: slog.New(trustEnds{look: func() {
		select {
		case h := <-holds:
			verdicts <- [2]bool{h.Context().Err() == nil, h.Valid()}
		default:
		}
	}})})
	h := take(s)
	if !h.Valid() {
		tb.Error("not valid at the beginning")
	}
	holds <- h
	nw.Client(client).BlackHole(zktest.Both)
	defer nw.Client(client).Heal()
	select {
	case v := <-verdicts:
		if !v[0] {
			tb.Error("the context has ended already: nothing was tested")
		}
		if v[1] {
			tb.Error("valid though trust has ended")
		}
	case <-time.After(time.Minute):
		tb.Error("trust does not end")
	}
}
