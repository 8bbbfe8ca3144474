package hold_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errLost     = errors.New("lost")
	errReleased = errors.New("released")
	errWork     = errors.New("the work failed")
	errGive     = errors.New("not given back")
	errEnough   = errors.New("enough")
)

// held is a hold that counts its releases.
type held struct {
	ctx      context.Context
	end      context.CancelCauseFunc
	released int
	invalid  bool
	fails    error
}

func newHeld(t *testing.T) *held {
	h := &held{}
	h.ctx, h.end = context.WithCancelCause(context.WithoutCancel(t.Context()))
	return h
}

func (h *held) Context() context.Context { return h.ctx }
func (h *held) Valid() bool              { return h.ctx.Err() == nil && !h.invalid }
func (h *held) Node() string             { return "/node" }

func (h *held) Release(context.Context) error {
	h.end(errReleased)
	h.released++
	return h.fails
}

func (h *held) acquire(context.Context) (*held, error) { return h, nil }

// TestDo compares the errors that Do returns with what happened to the function, the hold and the release.
func TestDo(t *testing.T) {
	for what, tt := range map[string]struct {
		fn    func(ctx context.Context, h *held, stop func()) error
		fails error // of the release
		want  []error
		never []error
	}{
		"done": {fn: func(context.Context, *held, func()) error { return nil }},
		"the work fails": {
			fn:   func(context.Context, *held, func()) error { return errWork },
			want: []error{errWork},
		},
		"told to end, the context's error": {
			fn: func(ctx context.Context, _ *held, stop func()) error { stop(); <-ctx.Done(); return ctx.Err() },
		},
		"told to end, the cause": {
			fn: func(ctx context.Context, _ *held, stop func()) error { stop(); <-ctx.Done(); return context.Cause(ctx) },
		},
		"told to end, nil": {
			fn: func(ctx context.Context, _ *held, stop func()) error { stop(); <-ctx.Done(); return nil },
		},
		"told to end, the work fails": {
			fn:   func(ctx context.Context, _ *held, stop func()) error { stop(); <-ctx.Done(); return errWork },
			want: []error{errWork},
		},
		"told to end, the release goes on": {
			fn:    func(ctx context.Context, _ *held, stop func()) error { stop(); <-ctx.Done(); return nil },
			fails: errEnough,
		},
		"told to end, the release fails": {
			fn:    func(ctx context.Context, _ *held, stop func()) error { stop(); <-ctx.Done(); return nil },
			fails: errGive,
			want:  []error{errGive},
		},
		"told to end, the work fails with that": {
			fn: func(ctx context.Context, _ *held, stop func()) error {
				stop()
				<-ctx.Done()
				return errors.Join(errWork, ctx.Err())
			},
			want: []error{errWork},
		},
		"told to end, in other words": {
			fn: func(ctx context.Context, _ *held, stop func()) error {
				stop()
				<-ctx.Done()
				return fmt.Errorf("work: %w", ctx.Err())
			},
		},
		"not valid any more, nil": {
			fn: func(_ context.Context, h *held, _ func()) error {
				h.invalid = true
				time.AfterFunc(time.Millisecond, func() { h.end(errLost) }) // told late
				return nil
			},
			want: []error{errLost},
		},
		"told to end, then lost": {
			fn: func(ctx context.Context, h *held, stop func()) error {
				stop()
				<-ctx.Done()
				h.end(errLost)
				return ctx.Err()
			},
			want:  []error{errLost},
			never: []error{context.Canceled, errEnough},
		},
		"lost, the context's error": {
			fn:    func(ctx context.Context, h *held, _ func()) error { h.end(errLost); <-ctx.Done(); return ctx.Err() },
			want:  []error{errLost},
			never: []error{context.Canceled},
		},
		"lost, nil": {
			fn:   func(ctx context.Context, h *held, _ func()) error { h.end(errLost); <-ctx.Done(); return nil },
			want: []error{errLost},
		},
		"lost, the work fails, the release fails": {
			fn:    func(ctx context.Context, h *held, _ func()) error { h.end(errLost); <-ctx.Done(); return errWork },
			fails: errGive,
			want:  []error{errLost, errWork, errGive},
		},
		"the release fails": {
			fn:    func(context.Context, *held, func()) error { return nil },
			fails: errGive,
			want:  []error{errGive},
		},
		"released by the work": {
			fn: func(ctx context.Context, h *held, _ func()) error { _ = h.Release(ctx); h.released--; return nil },
		},
		"released by another": {
			fn: func(ctx context.Context, h *held, _ func()) error {
				_ = h.Release(ctx)
				h.released--
				<-ctx.Done()
				return ctx.Err()
			},
			want: []error{context.Canceled},
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHeld(t)
			h.fails = tt.fails
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			err := hold.Do(ctx, hold.On{}, h.acquire, func(ctx context.Context) error {
				if hold.From[*held](ctx) != h {
					t.Error("the hold is not in the context")
				}
				return tt.fn(ctx, h, func() { stop(errEnough) })
			}, hold.Release, errReleased)
			if (err == nil) != (len(tt.want) == 0) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			for _, want := range tt.want {
				if !errors.Is(err, want) {
					t.Errorf("got %v, without %v", err, want)
				}
			}
			for _, never := range tt.never {
				if errors.Is(err, never) {
					t.Errorf("got %v, with %v", err, never)
				}
			}
			if h.released != 1 {
				t.Errorf("released %d times", h.released)
			}
		})
	}
}

// Do calls no function without a hold, and acquires nothing without a function or while it is not its turn.
func TestDoWithoutHold(t *testing.T) {
	refuse := func(context.Context) (*held, error) { return nil, errEnough }
	err := hold.Do(t.Context(), hold.On{}, refuse, func(context.Context) error { t.Error("called"); return nil }, hold.Release)
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
	acquire := func(context.Context) (*held, error) { t.Error("acquired"); return nil, errEnough }
	on := hold.On{Recipe: "x", Path: "/y", Turn: make(chan struct{}, 1)}
	on.Turn <- struct{}{}
	err = hold.Do(t.Context(), on, acquire, nil, hold.Release)
	if !errors.Is(err, recipe.ErrNoFunction) || err.Error() != "x: do /y: no function to call" {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	err = hold.Do(ctx, on, acquire, func(context.Context) error { t.Error("called beside another"); return nil }, hold.Release)
	if b, ok := errors.AsType[*recipe.BlockedError](err); !ok || b.Path != "/y" || !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

// A function that panics, or ends its goroutine, has its hold released.
func TestDoReleasesAlways(t *testing.T) {
	for what, end := range map[string]func(){
		"panic":  func() { panic(errWork) },
		"Goexit": runtime.Goexit,
	} {
		h, done := newHeld(t), make(chan any)
		go func() {
			defer func() { done <- recover() }()
			_ = hold.Do(t.Context(), hold.On{}, h.acquire, func(context.Context) error { end(); return nil }, hold.Release)
		}()
		if r := <-done; (r != nil) != (what == "panic") || h.released != 1 {
			t.Errorf("%s: recovered %v, released %d times", what, r, h.released)
		}
	}
}

// other is another type of hold.
type other struct{ *held }

// The context of a function has the values of the caller's and of the hold's, and the innermost hold of each type.
func TestUnder(t *testing.T) {
	type key string
	h, o := newHeld(t), other{newHeld(t)}
	h.ctx = context.WithValue(context.WithValue(h.ctx, key("hold"), 1), key("both"), 1)
	ctx := context.WithValue(context.WithValue(t.Context(), key("caller"), 2), key("both"), 2)
	err, _ := hold.Under(ctx, h, func(ctx context.Context) error {
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		err, _ := hold.Under(ctx, o, func(ctx context.Context) error {
			if ctx.Value(key("hold")) != 1 || ctx.Value(key("caller")) != 2 {
				t.Error("values are missing")
			}
			if ctx.Value(key("both")) != 2 {
				t.Error("the hold's value comes before the caller's")
			}
			if hold.From[*held](ctx) != h || hold.From[other](ctx) != o {
				t.Error("holds are missing")
			}
			h.end(errLost)
			if child.Err() == nil {
				t.Error("a child of the outer context ends later than its hold")
			}
			<-ctx.Done() // the outer hold ends the inner context, too
			return context.Cause(ctx)
		})
		return err
	})
	if !errors.Is(err, errLost) {
		t.Error(err)
	}
	if hold.From[*held](t.Context()) != nil {
		t.Error("a hold out of nothing")
	}
}
