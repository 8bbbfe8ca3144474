package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A function runs under the hold.
func TestDo(t *testing.T) {
	inWorld(t, func(w *world) {
		recipetest.Done{
			New: func(s *session.Session) recipetest.Doer {
				q := w.locking(s)
				w.put(q, "one")
				return q
			},
			Hold: recipetest.Found(queue.Hold),
			Lost: queue.ErrLost,
		}.Run(w, w.Srv, w.Net)
	})
}

// Do consumes an entry when its function is done, also when the program is to end; otherwise it gives the entry back. A function
// may do either itself.
func TestDoConsumes(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.locking(w.Session("a"))
		for what, tt := range map[string]struct {
			fn   func(ctx context.Context, h *queue.Held) error
			left int
			err  error
		}{
			"done":                            {fn: func(context.Context, *queue.Held) error { return nil }},
			"not done, and the context ended": {fn: func(ctx context.Context, _ *queue.Held) error { return ctx.Err() }, left: 1},
			"failed":                          {fn: func(context.Context, *queue.Held) error { return errors.ErrUnsupported }, left: 1, err: errors.ErrUnsupported},
			"consumed, then failed": {
				fn: func(ctx context.Context, h *queue.Held) error {
					return errors.Join(h.Consume(context.WithoutCancel(ctx)), errors.ErrUnsupported)
				},
				err: errors.ErrUnsupported,
			},
			"given back": {fn: func(ctx context.Context, h *queue.Held) error { return h.Release(context.WithoutCancel(ctx)) }, left: 1},
		} {
			for _, told := range []bool{false, true} {
				if !told && what == "not done, and the context ended" {
					continue
				}
				w.put(q, what)
				ctx, cancel := context.WithCancel(w.Context())
				err := q.Do(ctx, func(ctx context.Context) error {
					h := queue.Hold(ctx)
					if string(h.Value()) != what {
						w.Errorf("%s: got %q", what, h.Value())
					}
					if told {
						cancel()
						<-ctx.Done()
					}
					return tt.fn(ctx, h)
				})
				cancel()
				if !errors.Is(err, tt.err) {
					w.Errorf("%s, told to end: %v: %v", what, told, err)
				}
				w.wantLen(q, tt.left)
				if tt.left > 0 {
					w.consume(w.take(q, what))
				}
			}
		}
	})
}

// Do consumes an entry though trust has ended meanwhile, if it still can. If no server can be reached, Do waits for one session
// timeout from the end of its context.
func TestDoConsumesAfterTrust(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		q := w.locking(s)
		w.put(q, "one", "two")
		err := q.Do(w.Context(), func(ctx context.Context) error {
			recipetest.LoseTrust(w, w.Net.Client("a"), queue.Hold(ctx).Incarnation())
			<-ctx.Done()
			return nil
		})
		w.Check(err)
		w.wantLen(q, 1)
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		var told time.Time
		err = q.Do(ctx, func(context.Context) error {
			w.Net.Client("a").BlackHole(zktest.Both)
			told = time.Now()
			cancel()
			return nil
		})
		if took := time.Since(told); !errors.Is(err, session.ErrUncertain) && !errors.Is(err, queue.ErrLost) || took > s.Timeout() {
			w.Errorf("%v after %v", err, took)
		}
		w.Net.Client("a").Heal()
	})
}

// A function gives its hold back with its own context, which ends by that, and gets the outcome.
func TestDoWithItsOwnContext(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.locking(w.Session("a"))
		w.put(q, "one")
		w.Check(q.Do(w.Context(), func(ctx context.Context) error { return queue.Hold(ctx).Release(ctx) }))
		w.wantLen(q, 1)
		w.Check(q.Do(w.Context(), func(ctx context.Context) error { return queue.Hold(ctx).Consume(ctx) }))
		w.wantLen(q, 0)
	})
}
