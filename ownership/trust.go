package ownership

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/session"
)

// trust is the session as the loop knows it.
type trust struct {
	inc    *session.Incarnation // trusted, or nil
	zk     *session.Incarnation // the newest; its ZooKeeper session may live on when inc is nil
	life   context.Context      //nolint:containedctx // the lifetime of claims in inc
	watch  *claims.Watch        // of the claims in inc
	lostAt time.Time            // when trust ended that claims were lost with, until they are owned again
}

// followSession notifies the loop when incarnations begin and end.
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
		why := context.Cause(inc.Context())
		end(operr.Because(ErrLost, why)) // all handlers at once
		l.post(func() { l.onDistrust(inc, why) })
	}
}

// followWatch notifies the loop of claims that may have changed. It returns true when the incarnation has ended, false when ctx
// has.
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

// onSessionEnd handles the end of the session: it is closed, or has failed for good.
func (l *loop) onSessionEnd(err error) {
	if l.err == nil && l.phase == working {
		l.err = err
	}
	l.zk = nil
	l.takeAll(machine.SessionEnd, nil)
	l.drainAll()
}

// onTrust handles the beginning of an incarnation.
func (l *loop) onTrust(life context.Context, inc *session.Incarnation, watch *claims.Watch) {
	in := machine.Trust
	if !l.sameSession(inc) {
		in = machine.NewSession
		clear(l.sent)
		l.servers = ageOf(inc)
	}
	l.inc, l.zk, l.life, l.watch, l.toWatch = inc, inc, life, watch, nil
	l.o.log.DebugContext(life, "session trusted", "incarnation", inc.Number(), "session_id", fmt.Sprintf("0x%x", uint64(inc.SessionID())))
	l.setLevel(slices.Collect(maps.Values(l.parts)))
	l.takeAll(in, nil)
	l.scheduleSweep(inc)
	l.usePlan()
}

// onDistrust handles the end of an incarnation. All claims are lost; their handlers' contexts have ended already.
func (l *loop) onDistrust(inc *session.Incarnation, why error) {
	l.inc = nil
	if l.lostAt.IsZero() {
		l.lostAt = inc.TrustEnd()
	}
	l.noteDistrust(inc, operr.Because(ErrLost, why))
	l.takeAll(machine.Distrust, why)
}
