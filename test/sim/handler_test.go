package sim_test

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel/ownership"
)

// commitEvery is how often a handler commits.
const commitEvery = 5 * time.Second

// handle is the handler of a member: it opens at the committed offset, asks for trust before each message and each commit, and
// when its partition is revoked it commits and returns. The committed offset is stored anew after T, one minute and ten minutes,
// against commits of old owners that arrive late.
func (p *process) handle(ctx context.Context, c *ownership.Claim) error {
	w := p.w
	t := w.mon.enter(p, c)
	defer w.mon.exit(p, c)
	if t == nil {
		return nil
	}
	h := &handling{p: p, c: c, t: t, part: p.w.plan.index(c.Topic(), c.Partition()), ctx: ctx}
	if !h.open() {
		return context.Cause(ctx)
	}
	err := h.work()
	if stuck := p.stuckNow(); stuck != nil && err == nil {
		<-stuck
	}
	if errors.Is(context.Cause(ctx), ownership.ErrRevoked) && !p.isDead() && h.stored < h.t.position {
		if w.lax.commitLate {
			w.later(func() {
				time.Sleep(50 * time.Millisecond)
				h.commit(c.Context(), asksNot)
			})
			return nil
		}
		for c.Context().Err() == nil && h.stored < h.t.position && !p.isDead() {
			if !h.commit(c.Context(), asks) {
				sleep(c.Context(), 100*time.Millisecond)
			}
		}
	}
	return err
}

// handling is one call of the handler.
type handling struct {
	p      *process
	c      *ownership.Claim
	t      *term
	ctx    context.Context
	part   int
	stored int64       // that is committed, as far as we know
	due    []time.Time // when to commit again though nothing is new
}

// open finds where to begin.
func (h *handling) open() bool {
	for {
		off, err := h.p.w.kafka.committed(h.ctx, h.part)
		if _, alive := h.p.gate(true); !alive || h.ctx.Err() != nil || !h.c.Trusted() {
			return false
		}
		if err == nil {
			h.stored = off
			h.p.w.mon.opened(h.t, off)
			now := time.Now()
			for _, d := range []time.Duration{h.p.w.plan.Timeout, time.Minute, 10 * time.Minute} {
				h.due = append(h.due, now.Add(d))
			}
			return true
		}
		if !sleep(h.ctx, 100*time.Millisecond) {
			return false
		}
	}
}

// work processes messages until ctx ends, or the process does not feel like it any more.
func (h *handling) work() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	next := time.Now().Add(commitEvery)
	for h.ctx.Err() == nil && !h.p.isDead() {
		if wake, ok := h.p.w.kafka.message(h.part, h.t.position); !ok {
			until := time.Time{}
			if h.stored < h.t.position {
				until = next
			}
			if len(h.due) > 0 && (until.IsZero() || h.due[0].Before(until)) {
				until = h.due[0]
			}
			var alarm <-chan time.Time
			if !until.IsZero() {
				timer.Reset(time.Until(until))
				alarm = timer.C
			}
			select {
			case <-h.ctx.Done():
				return nil
			case <-h.p.dead:
				return nil
			case <-wake:
			case <-alarm:
			}
		} else if err := h.message(); err != nil {
			return err
		}
		now := time.Now()
		again := len(h.due) > 0 && !now.Before(h.due[0])
		if again || h.stored < h.t.position && !now.Before(next) {
			if again {
				h.due = h.due[1:]
			}
			h.commit(h.c.Context(), asks)
			next = time.Now().Add(commitEvery)
		}
	}
	return nil
}

var errMood = errors.New("handler: enough")

// message processes the next message.
func (h *handling) message() error {
	p := h.p
	if d := p.slowness(); d > 0 {
		time.Sleep(d) // a message in hand is finished, told or not
	}
	if panics, returns := p.mood(); panics {
		panic("simulated")
	} else if returns {
		return errMood
	}
	if _, alive := p.gate(false); !alive {
		return nil
	}
	if !h.c.Trusted() && !p.w.lax.trust {
		p.w.cov.hit("no trust when a message was to be processed")
		<-h.ctx.Done() // it is about to be told
		return nil
	}
	how := asks
	if waited, alive := p.gate(true); !alive {
		return nil
	} else if waited {
		how = inHand
	}
	if p.w.lax.trust {
		how = asksNot
	}
	if !p.w.mon.processed(h.t, h.t.position, how) && h.ctx.Err() == nil {
		<-h.ctx.Done() // it is about to be told
	}
	return nil
}

// commit stores the position, and says whether it is stored for sure.
func (h *handling) commit(ctx context.Context, how asking) bool {
	p := h.p
	if _, alive := p.gate(true); !alive {
		return false
	}
	c := &commit{p: p, part: h.part, off: h.t.position, term: h.t}
	if p.w.lax.trust {
		how = asksNot
	}
	if !p.w.mon.sending(c, how) {
		return false
	}
	err := p.w.kafka.commit(ctx, c)
	if _, alive := p.gate(true); !alive || err != nil {
		return false
	}
	p.w.mon.acked(c)
	h.stored = c.off
	return true
}
