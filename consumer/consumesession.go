package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// consumeSession is one call of Consume on a membership. Partitions are opened under it, from the end of Setup until it
// ends. It ends with the membership, or alone: then its partitions are closed and their claims stand.
type consumeSession struct {
	user     sessionUser
	ctx      context.Context //nolint:containedctx // ends when the session begins to end; what the user sees
	stop     context.CancelFunc
	closing  context.Context //nolint:containedctx // ends, with why, when the partitions are to be closed although their claims stand
	end      context.CancelCauseFunc
	openings kafkaconn.Calls // the loops of partitions that the session was yielded to
	detached chan struct{}   // closed when the call makes no use of the membership any more

	mu       sync.Mutex
	failure  error               // of a handler, which has ended the session
	over     bool                // detached: what a late handler does with it has no effect
	expected []allocfn.Partition // about to be opened; nil after Setup
	open     map[allocfn.Partition]*Partition
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
}

// errSessionOver is why partitions are closed whose claims stand.
var errSessionOver = errors.New("consumer: the Consume call ends")

// newConsumeSession returns a session for a call with ctx.
func newConsumeSession(ctx context.Context) *consumeSession {
	s := &consumeSession{detached: make(chan struct{}), open: map[allocfn.Partition]*Partition{}}
	s.ctx, s.stop = context.WithCancel(ctx)
	s.closing, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(s.closing, s.stop)
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

// expect notes which partitions are about to be opened; nil when they are.
func (s *consumeSession) expect(ps []allocfn.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected = ps
}

// opened notes that a partition is open.
func (s *consumeSession) opened(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[p.id] = p
}

// closed notes that a partition is closed.
func (s *consumeSession) closed(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[p.id] == p {
		delete(s.open, p.id)
	}
}

// partitions returns the partitions that are open; before Setup has returned, those that are about to be.
func (s *consumeSession) partitions() map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expected != nil {
		return byTopic(s.expected)
	}
	return byTopic(slices.Collect(maps.Keys(s.open)))
}

// opens returns the open partitions; the map is the caller's.
func (s *consumeSession) opens() map[allocfn.Partition]*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.open)
}

// fail ends the session alone, with the error of a handler. The first one counts.
func (s *consumeSession) fail(err error) {
	s.mu.Lock()
	if s.failure == nil {
		s.failure = err
	}
	s.mu.Unlock()
	s.end(errSessionOver)
}

// failed returns the error that ended the session, or nil.
func (s *consumeSession) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// isOver says whether the call has let go of the membership.
func (s *consumeSession) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// finish ends the session for good: what comes later of its handlers has no effect.
func (s *consumeSession) finish() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.end(nil)
	s.stop()
	close(s.detached)
}

// visit lets one partition's loop, which enter has counted in, run under s.
func (s *consumeSession) visit(yield func(*consumeSession) bool) bool {
	defer s.openings.End()
	return yield(s)
}
