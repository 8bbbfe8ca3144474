package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/internal/operr"
)

// noteSettled notes that the first claims of this incarnation are settled, once they are.
func (l *loop) noteSettled() {
	l.o.awaited.Store(int64(l.counts[awaited]))
	if l.counts[awaited] > 0 || !l.usable() || l.used != l.plan || !l.plan.joined || l.o.settled.Load() == l.inc {
		return
	}
	l.o.settled.Store(l.inc)
	if !l.lostAt.IsZero() {
		l.o.log.Info("resumed", "after", time.Since(l.lostAt), "partitions", len(l.o.Owned()), "stuck", l.counts[behindStuck])
		l.lostAt = time.Time{}
	}
}

// NotReady returns why this member is not ready, "" when it is: it has joined, its session is trusted, and the first claims since
// then are settled. A partition of the mapping is settled if it is owned, or can't be claimed for a reason that OnError receives:
// Accept has refused it, the session has no room, an earlier handler is stuck, or another member, which may be draining, has had
// the claim for longer than RebalanceTimeout. A member to which the mapping gives nothing is ready too. Later claims change
// nothing, until the session's trust ends or the member leaves. NotReady does not block.
func (o *Owner) NotReady() string {
	inc := o.session.Current()
	switch {
	case !o.started.Load():
		return "Run was not called"
	case o.leaving.Load():
		return "leaving"
	case inc == nil:
		return "the ZooKeeper session is not trusted"
	}
	if s := o.source.waiting(); s != "" {
		return s
	}
	if o.settled.Load() == inc {
		return ""
	}
	if n := o.awaited.Load(); n > 0 {
		return fmt.Sprintf("the first claims: %d more", n)
	}
	return "the first claims"
}

// Alive returns nil when the loops of the owner and the allocator have answered, before Run, and when Run has ended in order.
// Otherwise it returns the error with which Run has ended, or, when ctx ends, one that says which loop does not answer. It
// depends on neither ZooKeeper nor handlers and callbacks.
func (o *Owner) Alive(ctx context.Context) error {
	if l := o.running(); l != nil {
		err := l.ask(ctx, func() {})
		if err == nil {
			return o.source.alive(ctx)
		}
		if !errors.Is(err, ErrStopped) {
			return operr.New(pkg, "", "the loop does not answer", err)
		}
	}
	select {
	case <-o.done:
		return o.err
	default:
		return nil
	}
}

// running returns the loop while Run goes on.
func (o *Owner) running() *loop {
	select {
	case <-o.done:
		return nil
	default:
		return o.loop.Load()
	}
}

// ask has the loop call f, and returns when it has. When ctx or the loop ends first, f may be called later, or never.
func (l *loop) ask(ctx context.Context, f func()) error {
	answered := make(chan struct{})
	select {
	case l.inbox <- func() { defer close(answered); f() }:
	case <-l.done:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-answered:
		return nil
	case <-l.done:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
