package hold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const path = "/own"

// own returns an Own and the function that creates its znode.
func own(inc *session.Incarnation) (o *hold.Own, create func(life context.Context) error) {
	stands := func(life context.Context) (bool, error) {
		if err := inc.Sync(life, path); err != nil && !errors.Is(err, session.ErrNoNode) {
			return false, err
		}
		exists, _, err := inc.Exists(life, path)
		return exists, err
	}
	o = hold.NewOwn(path, slog.New(slog.DiscardHandler), nil, func(life context.Context) error {
		return hold.Delete(life, inc, path, stands)
	})
	return o, func(life context.Context) error {
		_, err := inc.Create(life, path, nil, session.Ephemeral)
		return err
	}
}

// The znode of a caller that gave up is removed, also if the outcome of its create is unknown; a znode that was not created is
// gone at once. Deletes that are refused, or whose reply is lost, are repeated.
func TestOwnIsNotLeft(t *testing.T) {
	for what, tt := range map[string]struct {
		giveUp, unsure, notMade bool
	}{
		"the caller gives up": {giveUp: true},
		"it can't be seen":    {unsure: true},
		"both":                {giveUp: true, unsure: true},
		"it was not made":     {notMade: true},
		"the caller has it":   {},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, nw := zktest.StartVirtual(t, zktest.Options{})
				s := recipetest.Session(t, nw, "a")
				inc, err := s.Incarnation(t.Context())
				noerr.Must(t, err)
				deletes := 0
				srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op == zktest.OpDelete {
						deletes++
						return []zktest.Action{{Err: zktest.ErrNoAuth}, {LoseReply: true}, {}}[min(deletes-1, 2)]
					}
					return zktest.Action{}
				})
				o, create := own(inc)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err = o.Make(ctx, func(life context.Context) error {
					if tt.notMade {
						return session.ErrNoAuth
					}
					if tt.giveUp {
						cancel()
						<-time.After(time.Second)
					}
					if err := create(life); err != nil || !tt.unsure {
						return err
					}
					return fmt.Errorf("%w: %w", hold.ErrUnsure, session.ErrUncertain)
				})
				if (err == nil) != (what == "the caller has it") || errors.Is(err, context.Canceled) != tt.giveUp {
					t.Errorf("made: %v", err)
				}
				if err == nil {
					if !o.Abandon(ctx) || o.Abandon(ctx) {
						t.Error("not the first to remove it, or twice")
					}
				}
				start := time.Now()
				noerr.Want(t, o.Wait(t.Context()))
				if waited := time.Since(start); waited > 10*time.Second || tt.notMade != (deletes == 0) {
					t.Errorf("gone after %v and %d deletes", waited, deletes)
				}
				if _, _, stands := srv.Get(path); stands {
					t.Error("it stands")
				}
			})
		})
	}
}

// A removal ends with the session, and a wait for it with its context.
func TestOwnGoesWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		s := recipetest.Session(t, nw, "a")
		inc, err := s.Incarnation(t.Context())
		noerr.Must(t, err)
		o, create := own(inc)
		noerr.Must(t, o.Make(t.Context(), create))
		srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpDelete {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		o.Abandon(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := o.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		srv.KillSession(inc.SessionID())
		noerr.Want(t, o.Wait(t.Context()))
	})
}
