package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
)

// A session that ends alone closes its partitions: marks are committed, the claim is kept, and nothing is read. The next session
// opens them again, where the last one stopped. Late calls of the last session's handlers have no effect.
func TestSessionsFollowOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, nil)
		r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: 40}})
		_, done := r.opened(h, 40, 41, 42)
		synctest.Wait()

		first := r.session
		r.endSession()
		if first.Context().Err() == nil {
			t.Error("the context of the session has not ended")
		}
		if at, claims := r.store.Get(p).Offset, first.Claims(); at != 43 || !slices.Equal(claims["t"], []int32{0}) {
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
		h.release(t, done)
		want := []string{
			line("commit", p, 40), line("open", p, 40), line("return", p, 0), line("commit", p, 43),
			line("commit", p, 43), line("open", p, 43), line("commit", p, 44), line("return", p, 0),
		}
		assert.Slices(t, r.log.all(), want, "log")
	})
}

// A partition claimed between two sessions waits for the next one. A partition revoked between them is released at once.
func TestClaimsBetweenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMarkRig(t, nil)
		r.endSession()
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
		assert.Equal(t, len(r.store.Fetches()), 0, "positions that were read between two sessions")
		r.begin(t.Context())
		<-r.fetch.streams
		h.revoke()
		for range 2 {
			assert.Error(t, <-done, nil, "own")
		}
	})
}

// A session may end while a partition is being opened.
func TestSessionEndsWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, nil)
		hold := make(chan struct{})
		r.store.Block = hold
		done := r.owned(h)
		synctest.Wait()
		began := time.Now()
		if r.endSession(); time.Since(began) > 0 {
			t.Errorf("the session has ended after %v", time.Since(began))
		}
		close(hold)
		r.begin(t.Context())
		(<-r.fetch.streams).send(0)
		synctest.Wait()
		h.release(t, done)
		assert.Equal(t, r.store.Get(p).Offset, 1, "stored")
	})
}

// A ConsumeClaim that does not return when its session ends makes the member leave.
func TestStuckWhenTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, hung := newHolder(t, tp("t", 0)), make(chan struct{})
		r := newRig(t, func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error { <-hung; return nil }, nil)
		done, s := r.owned(h), r.session.session
		<-r.fetch.streams
		synctest.Wait()
		began := time.Now()
		r.endSession()
		if d := time.Since(began); len(s.stuck) != 1 || !errors.Is(s.stuck[0].err, ownership.ErrStuck) || d != r.group.settings.RebalanceTimeout {
			t.Errorf("the session has ended with %v after %v", s.stuck, d)
		}
		assert.Error(t, context.Cause(r.ctx), ownership.ErrStuck, "the member leaves because of")
		close(hung)
		h.release(t, done)
	})
}

// The time that the member waits for the next session begins anew with each.
func TestWaitingBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, nil)
		for range 3 {
			r.endSession()
			time.Sleep(sessionTimeout - time.Millisecond)
			if r.ctx.Err() != nil || !r.begin(t.Context()) {
				t.Fatal("the member leaves too early")
			}
			time.Sleep(2 * sessionTimeout)
		}
		r.endSession()
		time.Sleep(sessionTimeout)
		synctest.Wait()
		if r.ctx.Err() == nil || r.begin(t.Context()) {
			t.Error("the member does not leave")
		}
	})
}

// Marks and resets of Setup set where partitions start: a mark moves forward, a reset back. After Setup they have no effect.
func TestSeek(t *testing.T) {
	mark := func(offset int64) seek { return seek{offset: offset, text: "mark"} }
	reset := func(offset int64) seek { return seek{offset: offset, text: "reset", reset: true} }
	for name, test := range map[string]struct {
		seeks []seek
		want  int64
		text  string
		moved bool
	}{
		"nothing":            {nil, 10, "", false},
		"mark":               {[]seek{mark(12)}, 12, "mark", true},
		"lower mark":         {[]seek{mark(9), mark(10)}, 10, "", false},
		"reset":              {[]seek{reset(3)}, 3, "reset", true},
		"reset to the same":  {[]seek{reset(10)}, 10, "reset", true},
		"higher reset":       {[]seek{reset(11)}, 10, "", false},
		"reset, then mark":   {[]seek{reset(3), mark(5), mark(4)}, 5, "mark", true},
		"reset below zero":   {[]seek{reset(-2)}, -2, "reset", true},
		"mark after a reset": {[]seek{mark(20), reset(15)}, 15, "reset", true},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newConsumeSession(t.Context(), t.Context(), sessions.Kind{}), tp("t", 0)
			s.expect([]kiel.Partition{p}, nil)
			for _, to := range test.seeks {
				s.seek(p, to)
				s.seek(tp("t", 1), to) // not expected
			}
			s.setupEnded(nil)
			s.seek(p, mark(1000)) // after Setup
			if offset, text, moved := s.sought(p, 10); offset != test.want || text != test.text || moved != test.moved {
				t.Errorf("%d, %q, %t", offset, text, moved)
			}
			if offset, _, moved := s.sought(tp("t", 1), 10); offset != 10 || moved {
				t.Errorf("a partition that was not expected starts at %d", offset)
			}
			s.forgetSeek(p)
			if offset, _, moved := s.sought(p, 20); offset != 20 || moved {
				t.Errorf("opened again at %d", offset)
			}
		})
	}
}

// When Setup has failed, Cleanup sees the same claims, and a mark comes late.
func TestMarksAfterASetupThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, nil)
		s := newConsumeSession(t.Context(), t.Context(), sessions.Kind{})
		user := r.newGroupSession(s, nil)
		s.expect([]kiel.Partition{tp("t", 0)}, nil)
		user.MarkOffset("t", 0, 5, "")
		assert.Equal(t, testutil.ToFloat64(r.metrics.ignored.WithLabelValues(lateMark)), 0, "late marks in Setup")
		s.setupEnded(ErrHandler)
		user.MarkOffset("t", 0, 6, "")
		user.ResetOffset("t", 0, 4, "")
		assert.Equal(t, testutil.ToFloat64(r.metrics.ignored.WithLabelValues(lateMark)), 2, "late marks after Setup")
		if claims := user.Claims(); !slices.Equal(claims["t"], []int32{0}) {
			t.Errorf("claims are %v", claims)
		}
	})
}

// steps is a context that ends the contexts derived from it one by one, when its test says so.
type steps struct {
	context.Context // has error and cause

	derived []func()
	done    chan struct{}
}

func (s *steps) Done() <-chan struct{} { return s.done }

func (s *steps) AfterFunc(f func()) (stop func() bool) {
	s.derived = append(s.derived, f)
	return func() bool { return false }
}

// The end of the caller's context reaches the session's context before the member leaves, whatever order package context takes: a
// handler that finds Messages closed must see that its session ends, and why.
func TestSessionEndsBeforeItsMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error { return nil }, nil)
		why := errors.New("why")
		parent, end := context.WithCancelCause(t.Context())
		ctx := &steps{Context: parent, done: make(chan struct{})}
		s := newConsumeSession(ctx, parent, sessions.Kind{})
		defer s.finish(sessions.Asked)
		defer r.leaveWith(ctx, s)()
		if len(ctx.derived) != 2 {
			t.Fatalf("%d contexts are derived, want that of the session and what makes the member leave", len(ctx.derived))
		}
		end(why)
		go ctx.derived[1]() // the member's is the first by chance
		synctest.Wait()
		if r.ctx.Err() != nil && s.ctx.Err() == nil {
			t.Error("the member leaves while the session's context is open")
		}
		ctx.derived[0]()
		synctest.Wait()
		if s.ctx.Err() == nil || !errors.Is(context.Cause(s.ctx), why) {
			t.Errorf("the session's context: %v, cause %v", s.ctx.Err(), context.Cause(s.ctx))
		}
		if r.ctx.Err() == nil {
			t.Error("the member does not leave")
		}
	})
}

// The call's context ends after the handlers have returned by themselves, and what makes the member leave with that context has
// not run by then. The stop is an orderly one all the same, in which a static member stays a member.
func TestStopIsOrderlyBeforeItsFunctionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error { return nil }, nil)
		r.group.settings.Static = true
		parent, end := context.WithCancel(t.Context())
		ctx := &steps{Context: parent, done: make(chan struct{})}
		s := newConsumeSession(ctx, parent, sessions.Kind{})
		end()
		go func() {
			s.finish(sessions.Asked)
			<-r.ctx.Done()
			close(r.done)
		}()
		noerr.Want(t, r.serve(ctx, s))
		assert.Error(t, context.Cause(r.ctx), ownership.ErrKeep, "the member leaves because of")
	})
}
