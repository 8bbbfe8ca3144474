package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/pause"
)

// consumeSession is one call of Consume or Run on a membership, with its one session. The driver says when Setup is called, under
// which claims, and when the session ends.
type consumeSession struct {
	kind    sessions.Kind
	user    sessionUser
	caller  context.Context //nolint:containedctx // the context that the user gave; it ends before ctx
	ctx     context.Context //nolint:containedctx // the context that the user sees; ends with the reason when the session begins to end
	end     context.CancelCauseFunc
	closing context.Context //nolint:containedctx // ends when all partitions are to be closed
	closes  context.CancelCauseFunc

	returned chan struct{} // closed when the call may return
	stuck    []givenUp     // what has not returned in its time; written before returned is closed

	mu      sync.Mutex
	exited  bool                // a handler that returned by itself ends the session, or has ended it
	failure error               // the error of that handler, if the call returns it; else nil
	setup   error               // the error of Setup
	cleanup error               // the error of Cleanup
	claims  []kiel.Partition    // of an eager session; of an incremental one the partitions about to be opened, nil when Setup has returned without error
	seeking bool                // Setup runs
	plan    *allocator.Snapshot // the plan when Setup was called
	seeks   map[kiel.Partition][]seek
	settled map[kiel.Partition]bool // of an eager session: it was opened, or its last commit has begun
	left    []kiel.Partition        // the partitions that were closed because the session ends; of an incremental session

	over atomic.Bool // Cleanup has returned: late calls of handlers have no effect
	open sync.Map    // from kiel.Partition to its *Partition; lock-free, because handlers may read it for each message
}

// givenUp is something that has not returned in its time.
type givenUp struct {
	err  error
	runs func() bool // whether it has not returned until now: then the error of the membership names it
}

// sessionUser is the user's code that a session calls: the handler of Consume, or the function of Run.
type sessionUser interface {
	// setup is called once, when the member has joined, before partitions are opened.
	setup() error
	// consume is called for each opening of a partition, on a goroutine of its own, for several partitions at the same time.
	// owned ends when the partition is revoked or lost, or is to be closed. p's context also ends when reading ends.
	consume(owned context.Context, p *Partition) error
	// cleanup is called once after setup, when every consume has returned.
	cleanup() error
	// failure returns the error that the call returns because consume returned err by itself. With nil the call returns no error,
	// and err is reported.
	failure(p kiel.Partition, err error) error
}

// errSessionOver is the cause with which partitions are closed while their claims are kept.
var errSessionOver = errors.New("the Consume call ends")

// newConsumeSession returns the session of a call. caller is the context that the user gave; ctx is derived from it and ends the
// session.
func newConsumeSession(ctx, caller context.Context, kind sessions.Kind) *consumeSession {
	s := &consumeSession{kind: kind, caller: caller, returned: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(ctx)
	s.closing, s.closes = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

// within returns a context for one partition's loop. It ends with ctx, which is the time of the claim, and when the session
// closes its partitions. The caller calls stop.
func (s *consumeSession) within(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.closing, func() { cancel(context.Cause(s.closing)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// expect stores what Setup is told of, and the plan, before Setup is called.
func (s *consumeSession) expect(ps []kiel.Partition, plan *allocator.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims, s.plan, s.seeking = ps, plan, true
}

// setupEnded ends the time in which marks are seeks: Setup has returned.
func (s *consumeSession) setupEnded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeking, s.setup = false, err
	if err == nil && !s.kind.Eager {
		s.claims = nil
	}
}

// inSetup reports whether Setup runs.
func (s *consumeSession) inSetup() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seeking
}

func (s *consumeSession) cleanupEnded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanup = err
}

// opened adds a partition to the open ones.
func (s *consumeSession) opened(p *Partition) {
	s.settle(p.id)
	s.open.Store(p.id, p)
}

// closed removes a partition from the open ones. byItself says that its handler has returned by itself.
func (s *consumeSession) closed(p *Partition, byItself bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.CompareAndDelete(p.id, p) && (s.ending() || s.exited && byItself) {
		s.left = append(s.left, p.id)
	}
}

// find returns an open partition, or nil.
func (s *consumeSession) find(topic string, partition int32) *Partition {
	if s.isOver() {
		return nil
	}
	p, _ := s.open.Load(kiel.Partition{Topic: topic, ID: partition})
	open, _ := p.(*Partition)
	return open
}

// partitions returns what Setup was told of, in an eager session all the time. In an incremental one it returns the open
// partitions when Setup has returned, and after the end of the session those that were open at the end.
func (s *consumeSession) partitions() map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind.Eager || s.claims != nil {
		return byTopic(s.claims)
	}
	return byTopic(slices.AppendSeq(slices.Clone(s.left), maps.Keys(s.opens())))
}

// opens returns the open partitions; the map is the caller's.
func (s *consumeSession) opens() map[kiel.Partition]*Partition {
	out := map[kiel.Partition]*Partition{}
	for _, p := range s.open.Range {
		if open, ok := p.(*Partition); ok { // nothing else is stored
			out[open.id] = open
		}
	}
	return out
}

// ending reports whether the session has begun to end. It checks the caller's context, too: a handler that watches that context
// may return before its end has reached the contexts derived from it.
func (s *consumeSession) ending() bool { return s.caller.Err() != nil || s.ctx.Err() != nil }

// isEnd reports whether err is nil or says only that the session ends.
func (s *consumeSession) isEnd(err error) bool {
	return err == nil || pause.OnlyEnd(s.caller, err) || pause.OnlyEnd(s.ctx, err)
}

// exit notes that a handler has returned by itself, so that the session ends and the call returns failure. It returns false, and
// does nothing, if another has before, or the session is ending.
func (s *consumeSession) exit(failure error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exited || s.ending() {
		return false
	}
	s.exited, s.failure = true, failure
	return true
}

// endsAlone reports whether the session ends while the member stays: a handler has ended it, or its partitions are being closed.
func (s *consumeSession) endsAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exited || s.closing.Err() != nil
}

// close ends the context of the session with a cause, and then, if all is set, all Messages.
func (s *consumeSession) close(cause error, all bool) {
	s.end(cause)
	if all {
		s.closes(errSessionOver)
	}
}

// finish lets the call return: from now on calls of its handlers have no effect.
func (s *consumeSession) finish(cause sessions.Cause) {
	if cause == sessions.TimedOut && len(s.stuck) == 0 { // all have returned
		s.mu.Lock()
		s.failure = sarama.ErrRebalanceTimedOut
		s.mu.Unlock()
	}
	s.over.Store(true)
	s.close(nil, true)
	close(s.returned)
}

// result returns the errors of the session, without that of the membership.
func (s *consumeSession) result() (setup, failed, cleanup error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setup, s.failure, s.cleanup
}

// late returns an error for what was given up and has returned since; nil for none. The membership has ended: its error names the
// rest.
func (s *consumeSession) late() error {
	var errs []error
	for _, up := range s.stuck {
		if !up.runs() {
			errs = append(errs, up.err)
		}
	}
	return joined(errs...)
}

// isOver reports whether Cleanup has returned, or the session has finished.
func (s *consumeSession) isOver() bool { return s.over.Load() }
