package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/ownership"
)

// A ConsumeClaim that returns while its messages are open ends the session, or with ReopenPartition pauses its own partition
// alone. Its marks are committed, and its error is reported.
func TestHandlerThatReturns(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		handler func() error
		want    error
	}{
		"nil":   {func() error { return nil }, nil},
		"error": {func() error { return boom }, boom},
		"panic": {func() error { panic("boom") }, ownership.ErrCallback},
	} {
		marks := func(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
			s.MarkMessage(<-claim.Messages(), "")
			return c.handler()
		}
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, tp("t", 0))
			r := newRig(t, marks, nil)
			said := r.logged()
			_, done := r.opened(h, 0)
			synctest.Wait()
			assert.Error(t, context.Cause(r.session.Context()), sarama.ErrSessionConsumeClaimExited, "the session's context")
			if got := r.store.Get(h.p).Offset; got != 1 || len(done) != 0 {
				t.Errorf("stored %d, want what was marked; the claim is released: %v", got, len(done) != 0)
			}
			assert.Error(t, r.session.session.failure, nil, "the call returns")
			level := "level=ERROR"
			if name == "nil" {
				level = "level=INFO"
			}
			assert.Equal(t, said.Count(level, "msg=failed", "kind=handler", "about=t:0"), 1, "lines that the handler has returned in %s", said)
			errs := r.errors()
			if len(errs) > 1 || len(errs) > 0 != (c.want != nil) || !errors.Is(errors.Join(errs...), c.want) {
				t.Fatalf("reported %v", errs)
			}
			for _, err := range errs {
				if ce, ok := errors.AsType[*sarama.ConsumerError](err); !ok || ce.Topic != "t" || errors.Is(err, ErrHandler) || name == "error" && ce.Err != boom { //nolint:errorlint // as it is
					t.Errorf("reported %#v", err)
				}
			}
			h.release(t, done)
		})
		bubble.Run(t, name+", reopen", func(t *testing.T) {
			h := newHolder(t, tp("t", 0))
			r := newRig(t, marks, func(o *Options) { o.ReopenPartition = true })
			_, done := r.opened(h, 0)
			assert.Error(t, <-done, errReported, "own, by which ownership knows that it was reported")
			assert.Equal(t, r.store.Get(h.p).Offset, 1, "stored, and marked before")
			errs := r.errors()
			if len(errs) != 1 || !errors.Is(errs[0], ErrHandler) || c.want != nil && !errors.Is(errs[0], c.want) {
				t.Fatalf("reported %v", errs)
			}
			if ce, ok := errors.AsType[*sarama.ConsumerError](errs[0]); !ok || ce.Topic != "t" {
				t.Errorf("reported %T", errs[0])
			}
			assert.Error(t, r.session.Context().Err(), nil, "the session's context")
		})
	}
}

// A handler that watches the session's context, as sarama's examples do, may return before its partition is revoked. The
// context's error is no error of the handler; any other error is reported.
func TestHandlerThatEndsWithItsSession(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct{ result, want error }{
		"nil": {nil, nil}, "the context's error": {context.Canceled, nil}, "its own": {boom, boom},
	} {
		for _, reopen := range []bool{false, true} {
			bubble.Run(t, fmt.Sprintf("%s, reopen: %v", name, reopen), func(t *testing.T) {
				p, h := tp("t", 0), newHolder(t, tp("t", 0))
				r := newRig(t, func(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
					s.MarkMessage(<-claim.Messages(), "")
					<-s.Context().Done()
					return c.result
				}, func(o *Options) { o.ReopenPartition = reopen })
				ctx, cancel := context.WithCancel(t.Context())
				r.begin(ctx)
				defer r.leaveWith(ctx, r.session.session)()
				_, done := r.opened(h, 0)
				synctest.Wait()
				cancel()
				synctest.Wait()
				if at := r.store.Get(p).Offset; at != 1 || len(done) != 0 {
					t.Errorf("stored %d; own has returned before the partition was revoked: %v", at, len(done) != 0)
				}
				h.revoke()
				if err := <-done; err != nil || r.session.session.failure != nil {
					t.Errorf("own: %v, the session failed: %v", err, r.session.session.failure)
				}
				if errs := r.errors(); len(errs) > 1 || len(errs) > 0 != (c.want != nil) || !errors.Is(errors.Join(errs...), c.want) {
					t.Errorf("reported %v", errs)
				}
			})
		}
	}
}

// A handler may see the end of its partition, or of its session, before that end has reached the partition's own context. Such a
// handler has not returned by itself.
func TestHandlerThatIsFasterThanTheNews(t *testing.T) {
	boom := errors.New("boom")
	for name, end := range map[string]func(h *fakeHolder, leave func()){
		"revoked":                        func(h *fakeHolder, _ func()) { h.revoke() },
		"lost":                           func(h *fakeHolder, _ func()) { h.lose() },
		"untrusted":                      func(h *fakeHolder, _ func()) { h.distrust.Store(true) },
		"the caller's context has ended": func(_ *fakeHolder, leave func()) { leave() },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, tp("t", 0))
			caller, leave := context.WithCancel(t.Context())
			r := newRig(t, func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error {
				end(h, leave)
				return boom
			}, nil)
			r.session.session.caller = caller // its end does not reach the session's context,
			owned, stop := context.WithCancel(t.Context())
			if name != "revoked" {
				h.work = owned // nor the claim's end the partition's
			}
			done := r.owned(h)
			synctest.Wait()
			if r.session.Context().Err() != nil || r.session.session.closing.Err() != nil {
				t.Errorf("the session has ended: %v", context.Cause(r.session.Context()))
			}
			if errs := r.errors(); len(errs) != 1 || !errors.Is(errs[0], boom) || errors.Is(errs[0], ErrHandler) {
				t.Errorf("reported %v", errs)
			}
			stop()
			assert.Error(t, <-done, nil, "own")
		})
	}
}

// When two handlers return at once both errors are reported; of Run's functions one is returned. A handler that returns because
// another has ended the session is no error.
func TestTwoHandlersThatReturn(t *testing.T) {
	boom := errors.New("boom")
	fails := func(context.Context) error { return boom }
	for name, c := range map[string]struct {
		second func(ctx context.Context) error
		want   int // errors
	}{
		"both fail":           {fails, 2},
		"the session ends":    {func(ctx context.Context) error { <-ctx.Done(); return nil }, 1},
		"the session's error": {func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("handle: %w", ctx.Err()) }, 1},
		"the session's cause": {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, 1},
		"an error of its own": {func(ctx context.Context) error { <-ctx.Done(); return boom }, 2},
		"both errors":         {func(ctx context.Context) error { <-ctx.Done(); return errors.Join(boom, ctx.Err()) }, 2},
	} {
		results := []func(context.Context) error{fails, c.second}
		consume := func(t *testing.T, both *sync.WaitGroup) *rig {
			return newRig(t, func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				s.MarkMessage(<-c.Messages(), "")
				both.Done()
				both.Wait()
				return results[c.Partition()](s.Context())
			}, nil)
		}
		run := func(t *testing.T, both *sync.WaitGroup) *rig {
			return newRunRig(t, func(ctx context.Context, p *Partition) error {
				for m := range p.Messages() {
					p.Mark(m)
					break
				}
				both.Done()
				both.Wait()
				return results[p.ID()](ctx)
			}, nil)
		}
		for api, start := range map[string]func(*testing.T, *sync.WaitGroup) *rig{"Consume": consume, "Run": run} {
			bubble.Run(t, api+", "+name, func(t *testing.T) {
				var both sync.WaitGroup
				both.Add(2)
				returnTwice(t, start(t, &both), c.want, boom)
			})
		}
	}
}

func returnTwice(t *testing.T, r *rig, want int, boom error) {
	holders := []*fakeHolder{newHolder(t, tp("t", 0)), newHolder(t, tp("t", 1))}
	done := []<-chan error{r.owned(holders[0]), r.owned(holders[1])}
	for range holders {
		(<-r.fetch.streams).send(0)
	}
	synctest.Wait()
	assert.Error(t, context.Cause(r.session.Context()), sarama.ErrSessionConsumeClaimExited, "the session's context")
	errs := r.errors()
	if err := r.session.session.failure; err != nil {
		errs = append(errs, err)
	}
	assert.Equal(t, len(errs), want, "errors: %v", errs)
	for _, err := range errs {
		if _, ok := errors.AsType[*sarama.ConsumerError](err); !ok || !errors.Is(err, boom) {
			t.Errorf("reported %v", err)
		}
	}
	for i, h := range holders {
		if at := r.store.Get(h.p).Offset; at != 1 || len(done[i]) != 0 {
			t.Errorf("%s: stored %d, released: %v", h.p, at, len(done[i]) != 0)
		}
		h.revoke()
		assert.Error(t, <-done[i], nil, "own")
	}
}
