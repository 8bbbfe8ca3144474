package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/ownership"
)

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
		if err := r.serve(ctx, s); err != nil {
			t.Error(err)
		}
		if cause := context.Cause(r.ctx); !errors.Is(cause, ownership.ErrKeep) {
			t.Errorf("the member leaves because of %v", cause)
		}
	})
}
