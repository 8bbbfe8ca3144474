package ownership

import (
	"context"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership/internal/machine"
)

// steady is how long a handler, or a claim, must have lasted for its end not to count as one of a row.
const steady = time.Minute

// vanishedPause is the longest pause before a claim that a third party has ended is made again: whoever puts znodes in order, and
// deletes some more than once, must not keep a partition without an owner for long.
const vanishedPause = 400 * time.Millisecond

// announce opens a claim that is ours: the claim is watched, the Observer is called with Claimed, and then the handler may start.
func (l *loop) announce(p *part) {
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
	p.claim = c
	l.toWatch = append(l.toWatch, p.znode)
	e := l.event(Claimed, c, c.origin.reason, nil)
	e.Previous = c.origin.previous
	if !l.o.users.observed() {
		l.onAnnounced(p, c, c.Trusted())
		return
	}
	l.o.users.observe(e, func() bool {
		c.said = c.Trusted()
		return c.said
	}, func() {
		said := c.said
		l.post(func() { l.onAnnounced(p, c, said) })
	})
}

// onAnnounced handles the return of the Observer from Claimed; said is false if it was not called, because the claim was not
// trusted any more.
func (l *loop) onAnnounced(p *part, c *Claim, said bool) {
	if p.claim == c && said {
		c.opened = time.Now()
		p.failures, p.returns = 0, 0
		l.noteOpen(p)
	}
	l.take(p, machine.Announced, nil)
}

// start calls the handler.
func (l *loop) start(p *part) {
	c, began := p.claim, time.Now()
	p.started = began
	if p.returns > 0 {
		l.after(steady, func() {
			if p.claim == c && p.started.Equal(began) && p.Handler == machine.Running {
				l.recovered(troubleHandler, p.id.String())
				l.recovered(usercall.Trouble(callHandler), p.id.String())
			}
		})
	}
	what := usercall.Callback{Kind: callHandler, About: c.id.String(), Name: "handler of " + c.id.String()}
	go func() { // may outlive Run when it is stuck
		var err error
		l.o.users.guard().Call(what, func() { err = l.o.handler(c.work, c) }, func(failure error) {
			if failure != nil {
				l.o.metrics.handlerFailed.Inc()
				err = failure
			}
			l.post(func() { l.onReturn(p, err) })
		})
	}()
}

// onReturn: the handler has returned.
func (l *loop) onReturn(p *part, err error) {
	if p.overtime != nil {
		p.overtime.Stop()
		p.overtime = nil
	}
	l.take(p, machine.Returned, err)
}

// onVanished handles a claim whose znodes another program has changed.
func (l *loop) onVanished(p *part, c *Claim, err error) {
	if p.claim != c {
		return
	}
	if c.isOpen() && time.Since(c.opened) >= steady {
		p.vanished = 0
	}
	in := machine.Vanished
	if p.vanished++; p.vanished > 1 { // one may be a mistake; whoever goes on is not answered request by request
		in = machine.VanishedAgain
	}
	l.take(p, in, err)
}

// expectReturn gives a handler whose context has ended its time.
func (l *loop) expectReturn(p *part) {
	if p.overtime == nil {
		p.asked = time.Now()
	} else {
		p.overtime.Stop()
	}
	if since, ok := l.overdue[p.id]; ok && since.Before(p.asked) {
		p.asked = since
	}
	d := l.o.opts.RebalanceTimeout - time.Since(p.asked)
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

// onOvertime: a handler has not returned in its time. Its claim is lost to it and released all the same.
func (l *loop) onOvertime(p *part) {
	stuck := &StuckError{Partition: p.id, For: time.Since(p.asked)}
	l.failed(troubleStuck, p.id.String(), stuck)
	l.armOvertime(p, l.o.opts.RebalanceTimeout) // to say it again
	if p.Handler != machine.Stuck {
		l.take(p, machine.Overtime, stuck)
	}
}

// cause returns the error with which the turn ends a claim's context.
func (t turn) cause() error {
	if t.lost() == "" {
		return ErrRevoked
	}
	return operr.Because(ErrLost, t.err)
}
