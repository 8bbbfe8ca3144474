package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/pause"
)

// consumeSession is one call of Consume or Run on a membership. Partitions are opened under it, from the end of Setup until it
// ends. It ends with the membership, or alone: then its partitions are closed and their claims are kept.
type consumeSession struct {
	user     sessionUser
	caller   context.Context //nolint:containedctx // the context that the user gave; it ends before ctx
	ctx      context.Context //nolint:containedctx // the context that the user sees; ends with the reason when the session begins to end
	stop     context.CancelCauseFunc
	closing  context.Context //nolint:containedctx // ends with the reason when the partitions are to be closed and their claims are kept
	end      context.CancelCauseFunc
	openings kafkaconn.Calls // the loops that open partitions under the session
	holding  kafkaconn.Calls // the same loops, until they have released the partitions that they hold
	detached chan struct{}   // closed when the call does not use the membership any more

	nextAt      time.Time     // when the next session may begin; set before partitions are opened
	heldLeaving bool          // partitions are held until Cleanup has returned, also when the member leaves
	cleaned     chan struct{} // closed when Cleanup has returned, or is not called
	cleanOnce   sync.Once

	mu       sync.Mutex
	exited   bool                // a handler that returned by itself ends the session, or has ended it
	exiting  *time.Timer         // ends the session when it is old enough; nil when no handler waits for that
	failure  error               // the error of that handler, if the call returns it; else nil
	expected []kiel.Partition    // the partitions about to be opened; nil when Setup has returned without error
	seeking  bool                // Setup runs
	plan     *allocator.Snapshot // the plan that has the expected partitions
	seeks    map[kiel.Partition][]seek
	left     []kiel.Partition // the partitions that were closed because the session ends

	over atomic.Bool // Cleanup has returned: late calls of handlers have no effect
	open sync.Map    // from kiel.Partition to its *Partition; lock-free, because handlers may read it for each message
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
func newConsumeSession(ctx, caller context.Context) *consumeSession {
	s := &consumeSession{caller: caller, detached: make(chan struct{}), cleaned: make(chan struct{})}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.closing, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
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

// expect stores the partitions that are about to be opened, and their plan, before Setup is called.
func (s *consumeSession) expect(ps []kiel.Partition, plan *allocator.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected, s.plan, s.seeking = ps, plan, true
}

// setupEnded ends the time in which marks are seeks: Setup has returned. If err is nil, partitions are opened from now on.
func (s *consumeSession) setupEnded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeking = false
	if err == nil {
		s.expected = nil
	}
}

// opened adds a partition to the open ones.
func (s *consumeSession) opened(p *Partition) { s.open.Store(p.id, p) }

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

// partitions returns the open partitions. Before Setup has returned it returns those that are about to be opened, and after the
// end of the session those that were open at the end.
func (s *consumeSession) partitions() map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expected != nil {
		return byTopic(s.expected)
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

// ending returns whether the session has begun to end. It checks the caller's context, too: a handler that watches that context
// may return before its end has reached the contexts derived from it.
func (s *consumeSession) ending() bool { return s.caller.Err() != nil || s.ctx.Err() != nil }

// isEnd returns whether err is nil or says only that the session ends.
func (s *consumeSession) isEnd(err error) bool {
	return err == nil || pause.OnlyEnd(s.caller, err) || pause.OnlyEnd(s.ctx, err)
}

// exit ends the session alone because a handler has returned by itself, and the call with failure. The session ends when the next
// one may begin, at the earliest: if one handler fails at once, the others go on until then. exit returns false, and does
// nothing, if the session is ending.
func (s *consumeSession) exit(failure error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exited || s.ending() {
		return false
	}
	s.exited, s.failure = true, failure
	end := func() { s.close(sarama.ErrSessionConsumeClaimExited) }
	if early := time.Until(s.nextAt); early > 0 {
		s.exiting = time.AfterFunc(early, end)
	} else {
		end()
	}
	return true
}

// stopExiting stops the timer of exit: the session has ended for another reason.
func (s *consumeSession) stopExiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exiting != nil {
		s.exiting.Stop()
	}
}

// close ends the session alone: the user's context ends with cause, and the partitions are closed.
func (s *consumeSession) close(cause error) {
	s.stop(cause)
	s.end(errSessionOver)
}

// failed returns the error with which exit has ended the session, or nil.
func (s *consumeSession) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// isOver returns whether Cleanup has returned, or the session has finished.
func (s *consumeSession) isOver() bool { return s.over.Load() }

// finish ends the session for good: later calls of its handlers have no effect.
func (s *consumeSession) finish() {
	s.stopExiting()
	s.setCleaned()
	s.stop(nil)
	s.end(nil)
	close(s.detached)
}
