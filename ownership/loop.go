package ownership

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// phase is where Run stands.
type phase int

const (
	working  phase = iota
	leaving        // the member znode is being removed; nothing new is taken
	draining       // all is revoked and released
)

const (
	workers  = 4                // requests of each sort under way at a time
	maxRetry = 30 * time.Second // between two tries of a request or handler that fails
	minRetry = 100 * time.Millisecond
	inboxLen = 256
)

// loop is the owner goroutine: the body of Run. Workers, timers and handlers send
// it inputs, functions that it calls one after the other; they and only they touch
// what is below the blank line.
type loop struct {
	o     *Owner
	wire  *claims.Wire
	base  context.Context //nolint:containedctx // the lifetime of handlers: values of Run's context, no end
	io    context.Context //nolint:containedctx // the lifetime of requests: that of the loop
	inbox chan func()
	done  chan struct{} // closed when nobody reads the inbox any more
	wg    sync.WaitGroup

	parts   map[kiel.Partition]*part
	plan    *plan
	refused map[kiel.Partition]error // of plan: what can't be claimed
	used    *plan                    // the plan that was acted on last
	told    map[kiel.Partition]bool  // OnError was told that these can't be claimed
	inc     *session.Incarnation     // trusted, or nil
	zk      *session.Incarnation     // the newest; its ZooKeeper session may live on when inc is nil
	life    context.Context          //nolint:containedctx // the lifetime of claims in inc
	watch   *claims.Watch            // of the claims in inc
	toWatch []claims.Finding         // claims that are to be watched
	checked kiel.Partition           // whose claim a sweep has read last
	sent    map[kiel.Partition]bool  // claims were sent for these in zk's session; true until none was seen to stand
	servers serversAge               // for which sent was looked at as a whole

	phase    phase
	err      error                        // with which Run ends
	deadline time.Time                    // of leaving
	overdue  map[kiel.Partition]time.Time // since when the handlers are to return that the cause of Run's end names
	joinedIn int64                        // the session in which Joined was told

	stopAllocator context.CancelFunc

	claims, looks, releases queue

	toClaim, toRevoke, unsettled int // parts in that state
	behindStuck                  int // parts that are planned for us and not claimed, because a handler is stuck
	awaited                      int // parts without which the member is not ready
	claimSince, revokeSince      time.Time
	stuck, full                  int       // parts that are stuck, or without room
	fullTold                     int       // parts of which the lack of room was reported
	freed                        bool      // something was released: there may be room again
	blockedNews                  bool      // a report of parts that are blocked is due in a moment
	lostAt                       time.Time // when trust ended that claims were lost with, until they stand again
	vanishedAt                   time.Time // when the first of the claims vanished that limitVanished counts
	vanished                     int
	unowned                      unowned

	blocked map[status.DisagreementKind]int // parts by what blocks them
}

func newLoop(ctx context.Context, o *Owner) *loop {
	return &loop{
		o:       o,
		wire:    claims.New(o.paths, o.id),
		base:    context.WithoutCancel(ctx),
		inbox:   make(chan func(), inboxLen),
		done:    make(chan struct{}),
		parts:   map[kiel.Partition]*part{},
		told:    map[kiel.Partition]bool{},
		sent:    map[kiel.Partition]bool{},
		blocked: map[status.DisagreementKind]int{},
	}
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

// handle handles inputs until all is released after leaving began, or until there
// is no time left for that.
func (l *loop) handle(ctx context.Context) {
	stop, end := l.o.leave, ctx.Done()
	var late <-chan time.Time
	for {
		if l.freed {
			l.freed = false
			l.roomAgain()
		}
		l.flush()
		l.watchClaims()
		l.settle()
		if l.phase == draining && l.unsettled == 0 {
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
			l.drainInbox()
		case <-end:
			end, stop = nil, nil
			l.overdue = map[kiel.Partition]time.Time{}
			l.noteOverdue(context.Cause(ctx))
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

// followSession tells the loop when incarnations begin and end.
func (l *loop) followSession(ctx context.Context) {
	for {
		inc, err := l.o.session.Incarnation(ctx)
		if err != nil {
			if ctx.Err() == nil {
				l.post(func() { l.onSessionEnd(err) })
			}
			return
		}
		life, end := context.WithCancelCause(l.base)
		watch := l.wire.Watch(inc)
		l.post(func() { l.onTrust(life, inc, watch) })
		lasts := l.followWatch(ctx, inc, watch)
		watch.End()
		if !lasts {
			end(ErrLost)
			return
		}
		cause := operr.Because(ErrLost, context.Cause(inc.Context()))
		end(cause) // all handlers at once
		l.post(func() { l.onDistrust(inc, cause) })
	}
}

// followWatch tells the loop of claims that may have changed. It returns true when the incarnation has ended, false when ctx has.
func (l *loop) followWatch(ctx context.Context, inc *session.Incarnation, watch *claims.Watch) bool {
	for {
		select {
		case <-watch.C():
			changed := watch.Changed()
			l.post(func() { l.onChanged(inc, changed) })
		case <-inc.Context().Done():
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// onSessionEnd: the session is closed, or failed for good.
func (l *loop) onSessionEnd(err error) {
	if l.err == nil && l.phase == working {
		l.err = err
	}
	l.zk = nil
	for _, p := range l.parts {
		p.held = heldNot // gone with the session
	}
	l.drainAll()
}

// onTrust: an incarnation began.
func (l *loop) onTrust(life context.Context, inc *session.Incarnation, watch *claims.Watch) {
	if l.zk == nil || l.zk.SessionID() != inc.SessionID() {
		for _, p := range l.parts {
			p.held, p.badSince, p.between = heldNot, time.Time{}, true // whatever stood, stood in a session that is over
			l.setRoom(p, true)
		}
		clear(l.sent)
		l.servers = ageOf(inc)
	}
	l.inc, l.zk, l.life, l.watch, l.toWatch = inc, inc, life, watch, nil
	l.o.log.DebugContext(life, "session trusted", "incarnation", inc.Number(), "session_id", fmt.Sprintf("0x%x", uint64(inc.SessionID())))
	for _, p := range l.parts {
		p.outdated = false
	}
	l.setLevel(slices.Collect(maps.Values(l.parts)))
	l.scheduleSweep(inc)
	l.usePlan()
	for _, p := range l.parts {
		l.step(p)
	}
}

// onDistrust: an incarnation ended. All claims are lost; their handlers' contexts
// have ended already.
func (l *loop) onDistrust(inc *session.Incarnation, cause error) {
	l.inc = nil
	l.o.metrics.showUnowned(0, time.Time{})
	stopped := 0
	l.say(Event{Kind: Untrusted, Session: inc.SessionID(), Version: l.version(), Since: inc.TrustEnd(), Err: cause, Reason: status.NewReason(status.SessionLost)})
	for _, p := range l.parts {
		if p.claim != nil {
			stopped++
			l.drop(p, status.SessionLost, cause)
		} else if p.held == heldOurs {
			p.held = heldUnsure
		}
		l.step(p)
	}
	if l.lostAt.IsZero() {
		l.lostAt = inc.TrustEnd()
	}
	l.o.log.Warn("session not trusted, partitions stopped", "partitions", stopped, "incarnation", inc.Number(), "error", cause)
}

// say tells the observer what is not about a partition, after what was said before.
func (l *loop) say(e Event) {
	e.Partition, e.Offset = -1, -1
	l.o.users.observeMerged(e)
}

func (l *loop) version() uint64 {
	if l.plan == nil {
		return 0
	}
	return l.plan.version
}

// backoff is the pause after a number of failures in a row: doubling, jittered.
func backoff(failures int) time.Duration {
	d := min(minRetry<<min(failures, 16), maxRetry)
	return d/2 + rand.N(d/2)
}
