package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
)

// steady is how long a handler, or a claim, must have lasted for its end not to
// count as one of a row.
const steady = time.Minute

// event is about a claim.
func (l *loop) event(kind EventKind, c *Claim, err error) Event {
	return Event{
		Kind: kind, Topic: c.id.Topic, Partition: c.id.ID, Token: c.token,
		Version: max(c.version, l.version()), Session: c.inc.SessionID(), Err: err,
	}
}

// open makes a claim of a znode that is ours: it is verified and watched, then
// the observer is told, then its handler starts.
func (l *loop) open(p *part) {
	ctx, end := context.WithCancelCause(l.life)
	work, revoke := context.WithCancelCause(ctx)
	c := &Claim{
		id: p.id, token: p.znode.token, version: l.plan.version,
		epochPath: l.o.paths.epoch(p.id), epochVersion: p.znode.epochVersion,
		inc: l.inc, ctx: ctx, end: end, work: work, revoke: revoke,
	}
	p.claim, p.busy = c, verifying
	l.wg.Go(func() {
		err := l.keeper.watch(c.ctx, c.inc, c.id, c.token, func() {
			l.post(func() { l.onVerified(p, c) })
		})
		if err != nil {
			l.post(func() { l.onVanished(p, c, err) })
		}
	})
}

func (l *loop) onVerified(p *part, c *Claim) {
	if p.claim != c {
		return // lost meanwhile
	}
	p.busy, p.telling = announcing, true
	e := l.event(Claimed, c, nil)
	l.tell.put(func() {
		c.said = c.Trusted()
		if c.said {
			l.observe(e)
		}
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
		l.o.metrics.moved.WithLabelValues(movedAssigned).Inc()
		l.o.metrics.claimWait.Observe(time.Since(p.due).Seconds())
		l.show(p)
		l.o.log.Info("claimed", "partition", p.id.String(), "token", c.token)
	}
	l.step(p)
}

// show puts a claim on the board.
func (l *loop) show(p *part) {
	c := p.claim
	l.o.board.put(Info{
		Topic: c.id.Topic, Partition: c.id.ID, Token: c.token, Version: c.version,
		Since: p.openedAt, Revoking: p.revoked,
	})
}

// start calls the handler.
func (l *loop) start(p *part) {
	c, began := p.claim, time.Now()
	p.running = true
	go func() { // may outlive Run when it is stuck
		var err error
		l.o.guard("handler of "+c.id.String(), func() { err = l.o.handler(c.work, c) }, func(panicked error) {
			if panicked != nil {
				err = panicked
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
		l.o.log.Warn("stuck handler returned", "partition", p.id.String(), "after", time.Since(p.endedAt))
		l.setStuck(p, false)
	case p.claim == c && !p.revoked:
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
		l.complain(fmt.Errorf("%w: %s: %w", ErrHandler, p.id, err))
	case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrRevoked) && !errors.Is(err, ErrLost):
		l.complain(fmt.Errorf("ownership: handler of %s ended: %w", p.id, err))
	}
	l.step(p)
}

// revoke tells a handler to finish.
func (l *loop) revoke(p *part) {
	p.revoked = true
	p.claim.revoke(ErrRevoked)
	l.sayOf(p.claim, l.event(Revoking, p.claim, nil), nil)
	l.show(p)
	l.o.log.Info("revoking", "partition", p.id.String(), "token", p.claim.token)
	if p.running {
		l.expectReturn(p)
	}
}

// closeClaim ends a claim, tells the observer, and then goes on to the release.
func (l *loop) closeClaim(p *part, kind EventKind, cause error) {
	c := p.claim
	c.finish(cause)
	var err error
	if kind == Lost {
		err = cause
	}
	if p.opened {
		direction := movedRevoked
		if kind == Lost {
			direction = movedLost
		}
		l.o.metrics.moved.WithLabelValues(direction).Inc()
	}
	l.o.board.remove(p.id)
	p.claim, p.opened, p.revoked, p.busy = nil, false, false, closing
	p.due = time.Now()
	l.sayOf(c, l.event(kind, c, err), func() {
		p.busy = idle
		l.step(p)
	})
}

// sayOf tells the observer of a claim of which it was told Claimed, and the loop
// when it has.
func (l *loop) sayOf(c *Claim, e Event, then func()) {
	l.tell.put(func() {
		if c.said {
			l.observe(e)
		}
		if then != nil {
			l.post(then)
		}
	})
}

// drop forgets a claim that is lost. Its handler has RebalanceTimeout to return.
func (l *loop) drop(p *part, cause error) {
	p.claim.finish(cause)
	if p.busy == verifying || p.busy == announcing {
		p.busy = idle
	}
	if p.opened {
		l.o.metrics.moved.WithLabelValues(movedLost).Inc()
		l.o.board.remove(p.id)
	}
	p.claim, p.opened, p.revoked = nil, false, false
	p.due = time.Now()
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
	cause := fmt.Errorf("%w: %w", ErrLost, err)
	l.complain(fmt.Errorf("ownership: %s: %w", p.id, cause))
	again := !p.opened || time.Since(p.openedAt) < steady
	l.sayOf(c, l.event(Lost, c, cause), nil)
	l.drop(p, cause)
	if again && p.failures > 0 {
		l.pause(p)
	} else {
		p.failures++
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
	l.complain(stuck)
	l.armOvertime(p, l.o.opts.RebalanceTimeout) // to say it again
	if p.stuck {
		return
	}
	l.setStuck(p, true)
	l.o.metrics.drainTimeouts.Inc()
	l.o.metrics.failed.WithLabelValues(stageRevoke).Inc()
	if l.off.Off(sabotage.StuckLosesClaim) {
		l.o.session.GiveUp(stuck)
	} else if p.claim != nil {
		l.closeClaim(p, Lost, fmt.Errorf("%w: %w", ErrLost, stuck))
	}
	l.step(p)
}
