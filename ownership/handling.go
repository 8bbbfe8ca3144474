package ownership

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/status"
)

// steady is how long a handler, or a claim, must have lasted for its end not to
// count as one of a row.
const steady = time.Minute

// vanishedPause is the longest pause before a claim that a third party has ended is made again: whoever puts znodes in order, and
// deletes some more than once, must not keep a partition without an owner for long.
const vanishedPause = 400 * time.Millisecond

// event is about a claim.
func (l *loop) event(kind EventKind, c *Claim, reason status.Reason, err error) Event {
	return Event{
		Kind: kind, Topic: c.id.Topic, Partition: c.id.ID, Token: c.token, Offset: -1,
		Version: max(c.version, l.version()), Session: c.inc.SessionID(), Err: err, Reason: reason,
	}
}

// open makes a claim of a znode that is ours: it is watched, the observer is told, and then its handler starts.
func (l *loop) open(p *part) {
	ctx, end := context.WithCancelCause(l.life)
	work, revoke := context.WithCancelCause(ctx)
	if p.again != "" || p.origin.reason.IsZero() {
		p.origin = l.origin(p)
	}
	c := &Claim{
		id: p.id, token: p.znode.Token, version: l.plan.version,
		epochPath: l.o.paths.Epoch(p.id), epochVersion: p.znode.EpochVersion,
		inc: l.inc, origin: p.origin, ctx: ctx, end: end, work: work, revoke: revoke,
	}
	p.claim, p.busy, p.telling = c, announcing, true
	l.toWatch = append(l.toWatch, p.znode)
	if !l.o.users.observed() {
		l.onAnnounced(p, c, c.Trusted())
		return
	}
	e := l.event(Claimed, c, c.origin.reason, nil)
	e.Previous = c.origin.previous
	l.o.users.observe(e, func() bool {
		c.said = c.Trusted()
		return c.said
	}, func() {
		said := c.said
		l.post(func() { l.onAnnounced(p, c, said) })
	})
}

func (l *loop) onAnnounced(p *part, c *Claim, said bool) {
	p.telling = false
	if p.claim != c { // lost meanwhile, and that was told after this
		l.step(p)
		return
	}
	p.busy = idle
	if said { // else trust has ended, which is about to be noticed
		p.opened, p.openedAt = true, time.Now()
		p.failures, p.returns, p.resting = 0, 0, false
		p.again, p.holder, p.wait = "", "", time.Since(p.due)
		l.recovered(troubleVanished, p.id.String())
		l.o.metrics.moved.WithLabelValues(movedAssigned).Inc()
		l.o.metrics.claimWait.Observe(p.wait.Seconds())
		l.show(p)
		l.o.log.Log(l.base, p.level, "claimed", "partition", p.id.String(), "token", c.token, "reason", c.origin.reason, "previous", c.origin.previous)
	}
	l.step(p)
}

// show puts a claim on the board.
func (l *loop) show(p *part) {
	c := p.claim
	l.o.board.put(Info{
		Topic: c.id.Topic, Partition: c.id.ID, Token: c.token, Version: c.version,
		Since: p.openedAt, Revoking: p.revoked, Reason: c.origin.reason, Previous: c.origin.previous,
	})
}

// start calls the handler.
func (l *loop) start(p *part) {
	c, began := p.claim, time.Now()
	p.running = true
	if p.returns > 0 {
		l.after(steady, func() {
			if p.claim == c && p.running && time.Since(p.startedAt) >= steady {
				l.recovered(troubleHandler, p.id.String())
				l.recovered(usercall.Trouble(callHandler), p.id.String())
			}
		})
	}
	p.startedAt = began
	what := usercall.Callback{Kind: callHandler, About: c.id.String(), Name: "handler of " + c.id.String()}
	go func() { // may outlive Run when it is stuck
		var err error
		l.o.users.guard().Call(what, func() { err = l.o.handler(c.work, c) }, func(failure error) {
			if failure != nil {
				l.o.metrics.handlerFailed.Inc()
				err = failure
			}
			l.post(func() { l.onReturn(p, c, began, err) })
		})
	}()
}

func (l *loop) onReturn(p *part, c *Claim, began time.Time, err error) {
	p.running = false
	if p.overtime != nil {
		p.overtime.Stop()
		p.overtime = nil
	}
	switch {
	case p.stuck:
		l.o.log.Info("stuck handler returned", "partition", p.id.String(), "after", time.Since(p.endedAt))
		l.setStuck(p, false)
		l.recovered(troubleStuck, p.id.String())
	case p.claim == c && !p.revoked && c.ctx.Err() == nil: // else trust has ended, which the loop is about to hear
		if err == nil {
			err = errors.New("without an error")
		}
		if time.Since(began) > steady {
			p.returns = 0
		}
		p.returns++
		p.resting = true
		l.after(backoff(p.returns), func() {
			if p.claim == c {
				p.resting = false
				l.step(p)
			}
		})
		l.failedPart(troubleHandler, p.id, operr.New("", "", p.id.String(), operr.Because(ErrHandler, err)))
	case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrRevoked) && !errors.Is(err, ErrLost):
		if !errors.Is(err, ErrCallback) { // that one names the handler
			err = operr.New("", "handler of", p.id.String(), err)
		}
		l.failedPart(troubleHandler, p.id, err)
	}
	l.step(p)
}

// revoke tells a handler to finish.
func (l *loop) revoke(p *part) {
	p.revoked, p.endedAt = true, time.Now()
	p.next, p.goes = l.destination(p)
	p.claim.revoke(ErrRevoked)
	e := l.event(Revoking, p.claim, p.goes, nil)
	e.Next = p.next
	l.sayOf(p.claim, e, nil)
	l.show(p)
	l.o.log.Log(l.base, p.level, "revoked", "partition", p.id.String(), "token", p.claim.token, "next", p.next, "reason", p.goes)
	if p.running {
		l.expectReturn(p)
	}
}

// closeClaim ends a claim, tells the observer, and then goes on to the release.
func (l *loop) closeClaim(p *part, kind EventKind, cause error) {
	c := p.claim
	c.finish(cause)
	var err error
	reason := p.goes
	if kind == Lost {
		err, reason, p.again = cause, status.NewReason(status.Stuck), status.Stuck
	}
	p.drained = time.Since(p.endedAt)
	if p.opened {
		direction := movedRevoked
		if kind == Lost {
			direction = movedLost
		}
		l.o.metrics.moved.WithLabelValues(direction).Inc()
	}
	l.o.board.remove(p.id)
	l.watch.Remove(p.id)
	p.claim, p.opened, p.revoked, p.busy = nil, false, false, closing
	p.due, p.origin, p.holder, p.between = time.Now(), origin{}, "", !p.want
	l.sayOf(c, l.event(kind, c, reason, err), func() {
		p.busy = idle
		l.step(p)
	})
}

// sayOf tells the observer of a claim of which it was told Claimed, and the loop
// when it has.
func (l *loop) sayOf(c *Claim, e Event, then func()) {
	switch {
	case l.o.users.observed():
		l.o.users.observe(e, func() bool { return c.said }, func() {
			if then != nil {
				l.post(then)
			}
		})
	case then != nil:
		then()
	}
}

// drop forgets a claim that is lost, as why says. Its handler has RebalanceTimeout to return.
func (l *loop) drop(p *part, why status.Code, cause error) {
	p.claim.finish(cause)
	l.watch.Remove(p.id)
	if p.busy == announcing {
		p.busy = idle
	}
	if p.opened {
		l.o.metrics.moved.WithLabelValues(movedLost).Inc()
		l.o.board.remove(p.id)
	}
	p.claim, p.opened, p.revoked = nil, false, false
	p.due, p.again, p.origin, p.holder, p.between = time.Now(), why, origin{}, "", !p.want
	if p.held == heldOurs {
		p.held = heldUnsure
	}
	if p.running && p.overtime == nil {
		l.expectReturn(p)
	}
}

// onVanished: a claim's znodes are not as we made them. Somebody else's doing.
func (l *loop) onVanished(p *part, c *Claim, err error) {
	if p.claim != c {
		return
	}
	cause := operr.Because(ErrLost, err)
	l.failedPart(troubleVanished, p.id, operr.New("", "", p.id.String(), cause))
	l.limitVanished(p)
	if p.opened && time.Since(p.openedAt) >= steady {
		p.vanished = 0
	}
	p.vanished++
	l.sayOf(c, l.event(Lost, c, status.NewReason(status.ClaimVanished), cause), nil)
	l.drop(p, status.ClaimVanished, cause)
	if p.vanished > 1 { // one may be a mistake; whoever goes on is not answered request by request
		l.pauseFor(p, min(backoff(p.vanished-1), vanishedPause), cause)
	}
	l.step(p)
}

// expectReturn gives a handler whose context has ended its time.
func (l *loop) expectReturn(p *part) {
	if p.overtime == nil {
		p.endedAt = time.Now()
	} else {
		p.overtime.Stop()
	}
	if since, ok := l.overdue[p.id]; ok && since.Before(p.endedAt) {
		p.endedAt = since
	}
	d := l.o.opts.RebalanceTimeout - time.Since(p.endedAt)
	if l.phase != working {
		d = min(d, time.Until(l.deadline)-min(l.o.opts.StopTimeout/5, 5*time.Second))
	}
	l.armOvertime(p, d)
}

func (l *loop) armOvertime(p *part, d time.Duration) {
	var timer *time.Timer
	timer = l.after(d, func() {
		if p.overtime == timer {
			l.onOvertime(p)
		}
	})
	p.overtime = timer
}

// onOvertime: a handler has not returned in its time. Its claim is lost to it and
// released all the same.
func (l *loop) onOvertime(p *part) {
	stuck := &StuckError{Partition: p.id, For: time.Since(p.endedAt)}
	l.failed(troubleStuck, p.id.String(), stuck)
	l.armOvertime(p, l.o.opts.RebalanceTimeout) // to say it again
	if p.stuck {
		return
	}
	l.setStuck(p, true)
	l.o.metrics.drainTimeouts.Inc()
	l.o.metrics.revokeFailed.Inc()
	if p.claim != nil {
		l.closeClaim(p, Lost, operr.Because(ErrLost, stuck))
	}
	l.step(p)
}
