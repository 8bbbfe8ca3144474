package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/ownership"
)

// A session that ends alone closes its partitions: what was marked is committed, the claim stands, nothing is read. The next
// session opens them again, where the last one stopped, and what comes late of the last one has no effect.
func TestSessionsFollowOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		var r *rig
		r = newRig(t, marker(&r), nil)
		r.store.Set(map[allocfn.Partition]offsets.Stored{p: {Offset: 40}})
		done := make(chan error, 1)
		go func() { done <- r.own(h.work, h) }()
		(<-r.fetch.streams).send(40, 41, 42)
		synctest.Wait()

		first := r.session
		if err := r.closePartitions(t.Context(), first.session); err != nil {
			t.Errorf("closePartitions: %v", err)
		}
		r.detach(first.session)
		if first.Context().Err() == nil {
			t.Error("the context of the session has not ended")
		}
		if at, claims := r.store.Get(p).Offset, first.Claims(); at != 43 || len(claims) != 0 {
			t.Errorf("stored %d, claims %v", at, claims)
		}
		time.Sleep(sessionTimeout/2 + time.Second/3) // between two commits of the interval
		if len(done) != 0 || len(r.fetch.streams) != 0 {
			t.Error("the partition was released, or opened, between two sessions")
		}

		r.begin(t.Context())
		s := <-r.fetch.streams
		s.send(43)
		synctest.Wait()
		first.MarkOffset("t", 0, 1000, "late")
		first.ResetOffset("t", 0, 1, "late")
		time.Sleep(2 * sessionTimeout)
		if r.ctx.Err() != nil {
			t.Error("the member leaves during a session")
		}
		h.revoke()
		if err := <-done; err != nil {
			t.Errorf("own: %v", err)
		}
		want := []string{
			line("commit", p, 40), line("open", p, 40), line("return", p, 0), line("commit", p, 43),
			line("commit", p, 43), line("open", p, 43), line("commit", p, 44), line("return", p, 0),
		}
		if got := r.log.all(); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// A claim that comes between two sessions waits, and one that goes is released at once.
func TestClaimsBetweenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, marker(&r), nil)
		_ = r.closePartitions(t.Context(), r.session.session)
		r.detach(r.session.session)
		h, gone := newHolder(t, tp("t", 0)), newHolder(t, tp("t", 1))
		done := make(chan error, 2)
		go func() { done <- r.own(gone.work, gone) }()
		synctest.Wait()
		gone.revoke()
		synctest.Wait()
		if len(done) != 1 {
			t.Fatal("a revoked claim is held between two sessions")
		}
		go func() { done <- r.own(h.work, h) }()
		synctest.Wait()
		if fetches := len(r.store.Fetches()); fetches != 0 {
			t.Errorf("%d positions were read between two sessions", fetches)
		}
		r.begin(t.Context())
		<-r.fetch.streams
		h.revoke()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("own: %v", err)
			}
		}
	})
}

// A session may end while a partition is being opened.
func TestSessionEndsWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		var r *rig
		r = newRig(t, marker(&r), nil)
		hold := make(chan struct{})
		r.store.Hold = hold
		done := make(chan error, 1)
		go func() { done <- r.own(h.work, h) }()
		synctest.Wait()
		began := time.Now()
		if err := r.closePartitions(t.Context(), r.session.session); err != nil || time.Since(began) > 0 {
			t.Errorf("closePartitions: %v after %v", err, time.Since(began))
		}
		r.detach(r.session.session)
		close(hold)
		r.begin(t.Context())
		(<-r.fetch.streams).send(0)
		synctest.Wait()
		h.revoke()
		if err := <-done; err != nil {
			t.Errorf("own: %v", err)
		}
		if at := r.store.Get(p).Offset; at != 1 {
			t.Errorf("stored %d", at)
		}
	})
}

// A ConsumeClaim that does not return when its session ends makes the member leave.
func TestStuckWhenTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, hung := newHolder(t, tp("t", 0)), make(chan struct{})
		r := newRig(t, func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error { <-hung; return nil }, nil)
		context.AfterFunc(r.ctx, func() { close(r.closed) }) // as the owner does
		done := make(chan error, 1)
		go func() { done <- r.own(h.work, h) }()
		<-r.fetch.streams
		synctest.Wait()
		began := time.Now()
		err := r.closePartitions(t.Context(), r.session.session)
		if d := time.Since(began); !errors.Is(err, ownership.ErrStuck) || d > r.group.settings.RebalanceTimeout+2*offsets.SettleTimeout {
			t.Errorf("closePartitions: %v after %v", err, d)
		}
		if cause := context.Cause(r.ctx); !errors.Is(cause, ownership.ErrStuck) {
			t.Errorf("the member does not leave: %v", cause)
		}
		close(hung)
		h.revoke()
		if err := <-done; err != nil {
			t.Errorf("own: %v", err)
		}
	})
}

// The time that the member waits for the next session begins anew with each.
func TestWaitingBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, nil)
		for range 3 {
			_ = r.closePartitions(t.Context(), r.session.session)
			r.detach(r.session.session)
			time.Sleep(sessionTimeout - time.Millisecond)
			if r.ctx.Err() != nil || !r.begin(t.Context()) {
				t.Fatal("the member leaves too early")
			}
			time.Sleep(2 * sessionTimeout)
		}
		_ = r.closePartitions(t.Context(), r.session.session)
		r.detach(r.session.session)
		r.evict(r.begun-1, sessionTimeout) // of a timer that fired as a session began
		if r.ctx.Err() != nil {
			t.Error("the member leaves for a session before the last one")
		}
		time.Sleep(sessionTimeout)
		synctest.Wait()
		if r.ctx.Err() == nil || r.begin(t.Context()) {
			t.Error("the member does not leave")
		}
	})
}

// A handler that watches the session's context, as sarama's examples do, may return before its partition is revoked. That the
// call ends is no error of the handler; what else it returns is reported.
func TestHandlerThatEndsWithItsSession(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct{ result, want error }{
		"nil": {nil, nil}, "the context's error": {context.Canceled, nil}, "its own": {boom, boom},
	} {
		for _, action := range []HandlerErrorAction{RetryPartition, EndRun} {
			t.Run(fmt.Sprintf("%s, %s", name, action), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, h := tp("t", 0), newHolder(t, tp("t", 0))
					r := newRig(t, func(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
						s.MarkMessage(<-claim.Messages(), "")
						<-s.Context().Done()
						return c.result
					}, func(o *Options) { o.AfterHandlerError = action })
					ctx, cancel := context.WithCancel(t.Context())
					r.begin(ctx)
					done := make(chan error, 1)
					go func() { done <- r.own(h.work, h) }()
					(<-r.fetch.streams).send(0)
					synctest.Wait()
					cancel()
					synctest.Wait()
					if at := r.store.Get(p).Offset; at != 1 || len(done) != 0 {
						t.Errorf("stored %d; own has returned before the partition was revoked: %v", at, len(done) != 0)
					}
					h.revoke()
					if err := <-done; err != nil || r.session.session.failed() != nil {
						t.Errorf("own: %v, the session failed: %v", err, r.session.session.failed())
					}
					if errs := r.errors(); len(errs) > 1 || len(errs) > 0 != (c.want != nil) || !errors.Is(errors.Join(errs...), c.want) {
						t.Errorf("reported %v", errs)
					}
				})
			})
		}
	}
}
