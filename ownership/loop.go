package ownership

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
)

// phase is how far Run is.
type phase int

const (
	working  phase = iota
	leaving        // the member znode is being removed; nothing new is taken
	draining       // all is revoked and released
)

const (
	workers  = 4                // requests of each sort under way at a time
	few      = 2                // … if they have less than a multi
	maxRetry = 30 * time.Second // between two tries of a request or handler that fails
	minRetry = 100 * time.Millisecond
	inboxLen = 256
)

// loop is the ownership loop: the body of Run. It gives inputs to the machines of the partitions, and does what they order:
// requests, calls of handlers and of the Observer. The journal notes each turn. Workers, timers and handlers send it functions,
// which it calls one after the other; these functions alone touch the fields below the blank line.
type loop struct {
	o     *Owner
	wire  *claims.Wire
	base  context.Context //nolint:containedctx // the lifetime of handlers: values of Run's context, no end
	io    context.Context //nolint:containedctx // the lifetime of requests: that of the loop
	inbox chan func()
	done  chan struct{} // closed when nobody reads the inbox any more
	wg    sync.WaitGroup

	parts                   map[kiel.Partition]*part
	claims, looks, releases queue
	trust
	plans
	sweeper
	departure
	journal
}

func newLoop(ctx context.Context, o *Owner) *loop {
	l := &loop{
		o:     o,
		wire:  claims.New(o.paths, o.id),
		base:  context.WithoutCancel(ctx),
		inbox: make(chan func(), inboxLen),
		done:  make(chan struct{}),
		parts: map[kiel.Partition]*part{},
	}
	l.claims.send, l.looks.send, l.releases.send = l.sendClaims, l.sendLooks, l.sendReleases
	l.told, l.sent = map[kiel.Partition]bool{}, map[kiel.Partition]bool{}
	return l
}

// post gives the loop an input; it is dropped when the loop has ended.
func (l *loop) post(f func()) {
	select {
	case l.inbox <- f:
	case <-l.done:
	}
}

// after gives the loop an input later.
func (l *loop) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { l.post(f) })
}

// handle runs the functions in the inbox. It returns when leaving has begun and all claims are released, or when the deadline for
// that is over.
func (l *loop) handle(ctx context.Context) {
	stop, end := l.o.leave, ctx.Done()
	var late <-chan time.Time
	for {
		l.roomAgain()
		l.flush()
		l.watchClaims()
		l.show()
		if l.phase == draining && l.counts[unsettled] == 0 {
			return
		}
		if l.phase != working && late == nil {
			timer := time.NewTimer(time.Until(l.deadline) - wrapUp(l.o.opts.StopTimeout))
			defer timer.Stop()
			late = timer.C
		}
		select {
		case f := <-l.inbox:
			f()
			// Goroutines that are about to give another input, as those of handlers that return together, do so first. No rule
			// depends on it: without it the first request goes alone more often, and a hand-over of many takes one round trip
			// more.
			runtime.Gosched()
			l.drainInbox()
		case <-end:
			end, stop = nil, nil
			l.overdue = map[kiel.Partition]time.Time{}
			l.noteOverdue(context.Cause(ctx))
			l.keeps = l.phase == working && errors.Is(context.Cause(ctx), ErrKeep)
			l.startLeaving()
		case <-stop:
			end, stop = nil, nil
			l.startLeaving()
		case <-late:
			return
		}
	}
}

// drainInbox handles what is there, so that requests travel together.
func (l *loop) drainInbox() {
	for {
		select {
		case f := <-l.inbox:
			f()
		default:
			return
		}
	}
}

// sameSession reports whether an incarnation is of the ZooKeeper session that lives now, as far as the loop knows.
func (l *loop) sameSession(inc *session.Incarnation) bool {
	return l.zk != nil && l.zk.SessionID() == inc.SessionID()
}

// backoff is the pause after a number of failures in a row: doubling, jittered.
func backoff(failures int) time.Duration {
	d := min(minRetry<<min(failures, 16), maxRetry)
	return d/2 + rand.N(d/2)
}
