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
)

// consumeSession is one call of Consume on a membership. Partitions are opened under it, from the end of Setup until it
// ends. It ends with the membership, or alone: then its partitions are closed and their claims stand.
type consumeSession struct {
	user     sessionUser
	caller   context.Context //nolint:containedctx // the user's own, which is the first to end
	ctx      context.Context //nolint:containedctx // ends, with why, when the session begins to end; what the user sees
	stop     context.CancelCauseFunc
	closing  context.Context //nolint:containedctx // ends, with why, when the partitions are to be closed although their claims stand
	end      context.CancelCauseFunc
	openings kafkaconn.Calls // the loops of partitions that the session was yielded to
	holding  kafkaconn.Calls // the same, until what they hold is released
	detached chan struct{}   // closed when the call makes no use of the membership any more

	nextAt      time.Time     // when the next session may begin; set before partitions are opened
	heldLeaving bool          // partitions are held until Cleanup has returned also when the member leaves
	cleaned     chan struct{} // closed when Cleanup has returned, or is not called
	cleanOnce   sync.Once

	mu       sync.Mutex
	exited   bool                // a handler ends the session, or has
	exiting  *time.Timer         // ends it when it is old enough; nil when that is not waited for
	failure  error               // with which the call returns because of that; nil for none
	expected []kiel.Partition    // about to be opened; nil when Setup has returned without error
	seeking  bool                // Setup runs
	plan     *allocator.Snapshot // the one that expected is of
	seeks    map[kiel.Partition][]seek
	left     []kiel.Partition // closed because the session ends

	over atomic.Bool // Cleanup has returned: what a late handler does with it has no effect
	open sync.Map    // of kiel.Partition to its *Partition; it is asked for each message, so it has no lock
}

// sessionUser is the user's code that a session calls. Each kind of session has its own.
type sessionUser interface {
	// setup is called once, when the member has joined, before partitions are opened.
	setup() error
	// consume is called for each opening of a partition, for several at the same time, on a goroutine of its own. owned ends
	// when the partition is revoked or lost, or is to be closed; p's context ends when reading ends, too.
	consume(owned context.Context, p *Partition) error
	// cleanup is called once after setup, when every consume has returned.
	cleanup() error
	// failure returns the error with which the call returns because consume returned err by itself; nil when the call returns
	// none, and err is to be reported.
	failure(p kiel.Partition, err error) error
}

// errSessionOver is why partitions are closed whose claims stand.
var errSessionOver = errors.New("consumer: the Consume call ends")

// newConsumeSession returns a session for a call that the user made with caller, and that ends with ctx, which is derived from it.
func newConsumeSession(ctx, caller context.Context) *consumeSession {
	s := &consumeSession{caller: caller, detached: make(chan struct{}), cleaned: make(chan struct{})}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.closing, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

// within returns a context for one partition's loop: it ends with ctx, the time of the claim, and when the session closes its
// partitions. The caller calls stop.
func (s *consumeSession) within(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.closing, func() { cancel(context.Cause(s.closing)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// expect notes which partitions are about to be opened, by which plan: Setup is called.
func (s *consumeSession) expect(ps []kiel.Partition, plan *allocator.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected, s.plan, s.seeking = ps, plan, true
}

// setUp notes that Setup has returned: no mark is a seek any more. Without its error the partitions are opened.
func (s *consumeSession) setUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeking = false
	if err == nil {
		s.expected = nil
	}
}

// opened notes that a partition is open.
func (s *consumeSession) opened(p *Partition) { s.open.Store(p.id, p) }

// closed notes that a partition is closed, because its handler has returned by itself or for another reason.
func (s *consumeSession) closed(p *Partition, byItself bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.CompareAndDelete(p.id, p) && (s.ending() || s.exited && byItself) {
		s.left = append(s.left, p.id)
	}
}

// find returns a partition that is open, or nil.
func (s *consumeSession) find(topic string, partition int32) *Partition {
	if s.isOver() {
		return nil
	}
	p, _ := s.open.Load(kiel.Partition{Topic: topic, ID: partition})
	open, _ := p.(*Partition)
	return open
}

// partitions returns the partitions that are open; before Setup has returned, those that are about to be; when the session has ended,
// those that were open then.
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

// ending returns whether the session has begun to end. The caller's context is looked at too: a handler that watches it may be
// faster than its end reaches the contexts derived from it.
func (s *consumeSession) ending() bool { return s.caller.Err() != nil || s.ctx.Err() != nil }

// isEnd returns whether err says nothing but that the session ends: it is nil, or the error or the cause of a context that has ended.
func (s *consumeSession) isEnd(err error) bool {
	return err == nil || isEndOf(s.caller, err) || isEndOf(s.ctx, err)
}

// isEndOf returns whether err is the error or the cause of a context that has ended.
func isEndOf(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// exit ends the session alone because a handler has returned by itself, and the call with failure; not before the time at which the next
// one may begin, so that a handler which fails at once leaves the others the time until then. It returns false, and does nothing, when
// the session was ending.
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

// stopExiting stops waiting for the end: the session has ended for another reason.
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

// failed returns the error that ended the session, or nil.
func (s *consumeSession) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// isOver says whether the call has let go of the membership.
func (s *consumeSession) isOver() bool { return s.over.Load() }

// finish ends the session for good: what comes later of its handlers has no effect.
func (s *consumeSession) finish() {
	s.stopExiting()
	s.setCleaned()
	s.stop(nil)
	s.end(nil)
	close(s.detached)
}
