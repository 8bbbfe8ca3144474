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
	over     bool                // detached: what a late handler does with it has no effect
	expected []allocfn.Partition // about to be opened; nil after Setup
	open     map[allocfn.Partition]*claim
}

// sessionUser is the user's code that a session calls. Each kind of session has its own.
type sessionUser interface {
	// setup is called once, when the member has joined, before partitions are opened.
	setup() error
	// consume is called for each opening of a partition, for several at the same time, on a goroutine of its own.
	consume(cl *claim) error
	// cleanup is called once after setup, when every consume has returned.
	cleanup() error
}

// errSessionOver is why partitions are closed whose claims stand.
var errSessionOver = errors.New("consumer: the Consume call ends")

// newConsumeSession returns a session for a call with ctx.
func newConsumeSession(ctx context.Context) *consumeSession {
	s := &consumeSession{detached: make(chan struct{}), open: map[allocfn.Partition]*claim{}}
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
func (s *consumeSession) opened(p allocfn.Partition, c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[p] = c
}

// closed notes that a partition is closed.
func (s *consumeSession) closed(p allocfn.Partition, c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[p] == c {
		delete(s.open, p)
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

// claim returns the claim of an open partition, or nil.
func (s *consumeSession) claim(p allocfn.Partition) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[p]
}

// claims returns the open claims; the map is the caller's.
func (s *consumeSession) claims() map[allocfn.Partition]*claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.open)
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
