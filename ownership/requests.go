package ownership

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/session"
)

// queue holds partitions of which requests of one sort are to be sent, together.
type queue struct {
	send    func([]*part)
	parts   []*part
	workers int // at work
}

func (q *queue) add(p *part) { q.parts = append(q.parts, p) }

// ready reports whether to start a worker: with any partitions when one worker at most is at work, otherwise only with a full
// multi, so that batches grow while workers are busy. The first of partitions that are given up together, or become free, is sent
// by itself, and the others do not wait for its answer.
func (q *queue) ready() bool {
	return len(q.parts) > 0 && q.workers < few || len(q.parts) >= claims.BatchSize && q.workers < workers
}

// flush hands the requests that inputs have queued to workers.
func (l *loop) flush() {
	for l.claims.ready() || l.looks.ready() || l.releases.ready() {
		l.flushQueue(&l.claims)
		l.flushQueue(&l.looks)
		l.flushQueue(&l.releases)
	}
}

func (l *loop) flushQueue(q *queue) {
	if !q.ready() {
		return
	}
	var due []*part
	for len(q.parts) > 0 { // what is not due may queue others
		parts := q.parts
		q.parts = nil
		for _, p := range parts {
			if p.Due(l.view()) {
				due = append(due, p)
			} else {
				l.take(p, machine.Unsent, nil)
			}
		}
	}
	if len(due) > 0 {
		q.send(due)
	}
}

func ids(parts []*part) []kiel.Partition {
	ids := make([]kiel.Partition, len(parts))
	for i, p := range parts {
		ids[i] = p.id
	}
	return ids
}

// errUnanswered says that a request has ended without an outcome for a claim.
var errUnanswered = errors.New("nothing was found out")

// inputOf returns the input that a finding is.
func inputOf(f claims.Outcome) machine.Input {
	return [...]machine.Input{
		claims.Ours: machine.FoundOurs, claims.Taken: machine.FoundTaken, claims.Gone: machine.FoundGone, claims.Unsure: machine.Unanswered,
		claims.Unsent: machine.Unsent, claims.NoRoom: machine.NoRoom, claims.Forbidden: machine.Refused,
	}[f]
}

// found has a partition's machine take what a request has found about its claim.
func (l *loop) found(p *part, inc *session.Incarnation, f claims.Finding) {
	in := inputOf(f.Outcome)
	switch {
	case p.Stale: // no outcome, and no reason to wait or to pause
		in = machine.Unanswered
	case f.Outcome == claims.Ours:
		if p.znode = f; f.Foreign {
			in = machine.FoundForeign
		}
	case p.Claim == machine.Looking && f.Outcome == claims.Taken:
		l.sent[p.id] = false // while another's claim exists, ours does not
	case p.Claim == machine.Looking && f.Outcome == claims.Unsure:
		in = machine.UnansweredAgain
	case p.Claim == machine.Releasing:
		in = l.released(p, inc, f)
	case p.Claim == machine.Waiting:
		p.freed = f.Outcome == claims.Gone
	}
	l.take(p, in, f.Err)
}

// released returns the input that the answer to a release is.
func (l *loop) released(p *part, inc *session.Incarnation, f claims.Finding) machine.Input {
	switch {
	case f.Outcome == claims.Gone:
		p.failures, p.refused, l.freed = 0, time.Time{}, true
	case f.Outcome == claims.Unsure:
		if p.failures++; p.failures > 2 {
			return machine.UnansweredAgain
		}
	case p.refused.IsZero():
		p.refused = time.Now()
	case time.Since(p.refused) > inc.Timeout():
		l.o.session.GiveUp(operr.Because(ErrStuck, f.Err)) // a claim that can't be released would block the next owner for ever
	}
	return inputOf(f.Outcome)
}

// request has a worker do work for parts, in an incarnation, and hands on each finding as work finds it.
func (l *loop) request(q *queue, inc *session.Incarnation, parts []*part, work func(found func(...claims.Finding))) {
	asked := make(map[kiel.Partition]*part, len(parts))
	for _, p := range parts {
		asked[p.id] = p
	}
	q.workers++
	l.wg.Go(func() {
		work(func(found ...claims.Finding) {
			l.post(func() {
				for _, f := range found {
					if p := asked[f.ID]; p != nil {
						delete(asked, f.ID)
						l.found(p, inc, f)
					}
				}
				l.reportRoom()
			})
		})
		l.post(func() {
			q.workers--
			for id, p := range asked { // else they would wait for ever
				l.found(p, inc, claims.Finding{ID: id, Err: errUnanswered})
			}
		})
	})
}

// worthListing is how many claims are worth one list of all, which saves as many requests that are refused. Claims that were
// waited for do not count.
const worthListing = 4

func (l *loop) sendClaims(parts []*part) {
	inc := l.inc
	origins, unseen := make(map[kiel.Partition]origin, len(parts)), 0
	for _, p := range parts {
		if !p.freed {
			unseen++
		}
		p.freed = false
		l.sent[p.id] = true
		p.origin = l.origin(p)
		origins[p.id] = p.origin
	}
	list := unseen >= worthListing
	l.request(&l.claims, inc, parts, func(found func(...claims.Finding)) {
		l.wire.Claim(l.io, inc, ids(parts), list, l.o.records(inc, origins), found)
	})
}

func (l *loop) sendLooks(parts []*part) {
	inc := l.zk
	l.request(&l.looks, inc, parts, func(found func(...claims.Finding)) {
		found(l.wire.Look(l.io, inc, ids(parts))...)
	})
}

func (l *loop) sendReleases(parts []*part) {
	inc := l.zk
	znodes := make([]claims.Finding, len(parts))
	for i, p := range parts {
		znodes[i] = p.znode
	}
	l.request(&l.releases, inc, parts, func(found func(...claims.Finding)) {
		l.wire.Release(l.io, inc, znodes, found)
	})
}

// wait waits for another's claim to go.
func (l *loop) wait(p *part) {
	inc := l.inc
	ctx, stop := context.WithCancel(l.io)
	ended := context.AfterFunc(inc.Context(), stop) // its watches say nothing from then on
	p.stop = stop
	late := l.after(l.o.opts.RebalanceTimeout, func() {
		if ctx.Err() == nil {
			l.noteLate(p)
		}
	})
	l.wg.Go(func() {
		f := l.wire.Await(ctx, inc, p.id, func(data []byte, stat session.Stat) {
			s := standingOf(data, stat)
			l.post(func() { l.noteStanding(p, s) })
		})
		l.post(func() {
			ended()
			stop()
			late.Stop()
			l.found(p, inc, f)
		})
	})
}

// roomAgain tries again what had no room, once something was released.
func (l *loop) roomAgain() {
	if !l.freed {
		return
	}
	l.freed = false
	if l.count(); l.counts[noRoom] == 0 {
		return
	}
	for _, p := range l.parts {
		if p.NoRoom {
			l.take(p, machine.Room, nil)
		}
	}
}
