package ownership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
)

// flush hands the parts that inputs have queued to workers.
func (l *loop) flush() {
	for l.claims.ready() || l.looks.ready() || l.releases.ready() {
		l.sendClaims()
		l.sendLooks()
		l.sendReleases()
	}
}

// ready says whether there is something for a worker: whatever there is when none is
// at work, else as much as a multi has. Meanwhile the next batch grows.
func (q *queue) ready() bool {
	return len(q.parts) > 0 && q.workers == 0 || len(q.parts) >= claims.BatchSize && q.workers < workers
}

// take takes out the parts of which still is true. The others are stepped.
func (l *loop) take(q *queue, still func(*part) bool) []*part {
	if !q.ready() {
		return nil
	}
	var taken []*part
	for len(q.parts) > 0 { // a step may add some
		parts := q.parts
		q.parts = nil
		for _, p := range parts {
			if still(p) {
				taken = append(taken, p)
			} else {
				p.busy = idle
				l.step(p)
			}
		}
	}
	return taken
}

func ids(parts []*part) []kiel.Partition {
	ids := make([]kiel.Partition, len(parts))
	for i, p := range parts {
		ids[i] = p.id
	}
	return ids
}

// request has a worker do work for parts, and hands each finding to on, as work finds it.
func (l *loop) request(q *queue, inc *session.Incarnation, parts []*part, work func(found func(...claims.Finding)), on func(*part, claims.Finding)) {
	asked := make(map[kiel.Partition]*part, len(parts))
	for _, p := range parts {
		asked[p.id] = p
	}
	answered := func(f claims.Finding) {
		p := asked[f.ID]
		if p == nil {
			return
		}
		delete(asked, f.ID)
		p.busy = idle
		// A finding of a session that is over says nothing about this one.
		if l.zk != nil && l.zk.SessionID() == inc.SessionID() {
			on(p, f)
		}
		l.step(p)
	}
	q.workers++
	l.wg.Go(func() {
		work(func(found ...claims.Finding) {
			l.post(func() {
				for _, f := range found {
					answered(f)
				}
				l.reportRoom()
			})
		})
		l.post(func() {
			q.workers--
			for id := range asked { // else it would wait for ever
				answered(claims.Finding{ID: id, Err: errUnanswered})
			}
		})
	})
}

// errUnanswered says that a request has ended and told nothing about a claim.
var errUnanswered = errors.New("nothing was found out")

// own notes a claim of ours, found in an incarnation.
func (p *part) own(f claims.Finding, inc *session.Incarnation) {
	p.held, p.znode, p.foundIn = heldOurs, f, inc
}

func (l *loop) sendClaims() {
	parts := l.take(&l.claims, l.mayTake)
	if len(parts) == 0 {
		return
	}
	inc, plan := l.inc, l.plan
	origins := make(map[kiel.Partition]origin, len(parts))
	for _, p := range parts {
		l.sent[p.id] = true
		p.origin = l.origin(p)
		origins[p.id] = p.origin
	}
	l.request(&l.claims, inc, parts, func(found func(...claims.Finding)) {
		l.wire.Claim(l.io, inc, ids(parts), l.o.records(inc, origins), found)
	}, func(p *part, f claims.Finding) {
		switch f.Fate {
		case claims.Ours:
			l.o.metrics.claims.WithLabelValues(resultOK).Inc()
			p.own(f, inc)
			l.recovered(troubleClaim, p.id.String())
		case claims.Gone:
			p.held = heldNot
		case claims.Taken:
			l.recovered(troubleClaim, p.id.String())
			l.wait(p)
		case claims.Unsure:
			l.o.metrics.claims.WithLabelValues(resultTimeout).Inc()
			l.warn(troubleUnsure, p.id.String(), operr.New("", "claim without an answer", "", f.Err))
			p.held = heldUnsure
		case claims.Unsent:
			// The loop is about to hear why, or has already.
			p.outdated = l.plan == plan && l.inc == inc
		case claims.NoRoom:
			l.setRoom(p, false)
		case claims.Forbidden:
			l.o.metrics.claims.WithLabelValues(resultError).Inc()
			l.o.metrics.claimFailed.Inc()
			l.failedPart(troubleClaim, p.id, f.Err)
			l.pause(p, f.Err)
		}
	})
}

// reportRoom tells of the partitions for which the session has no room.
func (l *loop) reportRoom() {
	if l.full == l.fullTold {
		return
	}
	l.fullTold = l.full
	if l.full == 0 {
		l.recovered(troubleRoom, "")
		return
	}
	l.o.metrics.claimFailed.Inc()
	l.failed(troubleRoom, "", operr.Because(fmt.Errorf("%w: %d partitions", ErrUnclaimed, l.full), session.ErrEphemeralBudget))
}

// roomAgain tries again what had no room.
func (l *loop) roomAgain() {
	if l.full == 0 {
		return
	}
	for _, p := range l.parts {
		if p.noRoom {
			l.setRoom(p, true)
			l.step(p)
		}
	}
}

// wait waits for another's claim to go.
func (l *loop) wait(p *part) {
	if !l.mayTake(p) {
		return
	}
	inc := l.inc
	ctx, stop := context.WithCancel(l.io)
	ended := context.AfterFunc(inc.Context(), stop) // its watches say nothing from then on
	p.busy, p.stop = waiting, stop
	late := l.after(l.o.opts.RebalanceTimeout, func() {
		if ctx.Err() == nil {
			l.o.metrics.divergence.Inc()
			l.warn(troubleHeld, p.id.String(), fmt.Errorf("%s: the claim of %.80q has stood for %v", p.id, p.holder, l.o.opts.RebalanceTimeout))
			p.late = true
			l.account(p)
		}
	})
	l.wg.Go(func() {
		f := l.wire.Await(ctx, inc, p.id, func(data []byte, stat session.Stat) {
			s := standingOf(data, stat)
			l.o.metrics.claims.WithLabelValues(resultConflict).Inc()
			l.o.log.Debug("partition is held by another", "partition", p.id.String(), "holder", s.holder, "persistent", s.persistent, "session_id", fmt.Sprintf("0x%x", uint64(s.session)))
			l.post(func() { l.onStanding(p, s) })
		})
		l.post(func() {
			ended()
			stop()
			late.Stop()
			p.busy, p.stop, p.late = idle, nil, false
			p.other = standing{}
			l.setBlocked(p, "")
			l.recovered(troubleHeld, p.id.String())
			if l.zk != nil && l.zk.SessionID() == inc.SessionID() {
				switch f.Fate {
				case claims.Unsure:
					p.held = heldUnsure
				case claims.Forbidden:
					l.failedPart(troubleClaim, p.id, f.Err)
					l.pause(p, f.Err)
				default:
				}
			}
			l.step(p)
		})
	})
}

func (l *loop) sendLooks() {
	if l.zk == nil { // the session is closed, and our claims are gone with it
		for _, p := range l.take(&l.looks, func(*part) bool { return true }) {
			p.busy, p.held = idle, heldNot
			l.step(p)
		}
		return
	}
	parts := l.take(&l.looks, func(p *part) bool { return p.held == heldUnsure })
	if len(parts) == 0 {
		return
	}
	inc := l.zk
	l.request(&l.looks, inc, parts, func(found func(...claims.Finding)) {
		found(l.wire.Look(l.io, inc, ids(parts))...)
	}, func(p *part, f claims.Finding) {
		if f.Fate != claims.Unsure {
			l.recovered(troubleUnsure, p.id.String())
		}
		switch f.Fate {
		case claims.Ours:
			p.own(f, inc)
		case claims.Taken:
			p.held = heldNot
			l.sent[p.id] = false // while another's claim stands, ours does not
			l.wait(p)
		case claims.Gone:
			p.held = heldNot
		default:
			l.warn(troubleUnsure, p.id.String(), f.Err)
			l.pause(p, f.Err)
		}
	})
}

func (l *loop) sendReleases() {
	if l.zk == nil {
		for _, p := range l.take(&l.releases, func(*part) bool { return true }) {
			p.busy, p.held = idle, heldNot
			l.step(p)
		}
		return
	}
	parts := l.take(&l.releases, func(p *part) bool {
		return p.held == heldOurs && (p.running || p.znode.Foreign || l.unwanted(p))
	})
	if len(parts) == 0 {
		return
	}
	inc := l.zk
	znodes := make([]claims.Finding, len(parts))
	for i, p := range parts {
		znodes[i] = p.znode
	}
	l.request(&l.releases, inc, parts, func(found func(...claims.Finding)) {
		l.wire.Release(l.io, inc, znodes, found)
	}, func(p *part, f claims.Finding) {
		switch f.Fate {
		case claims.Gone:
			p.held, p.failures, p.badSince = heldNot, 0, time.Time{}
			l.recovered(troubleRelease, p.id.String())
			l.o.log.Log(l.base, p.level, "released", "partition", p.id.String(), "token", p.znode.Token, "drained", p.drained)
			p.drained = 0
			l.freed = true
		case claims.Forbidden:
			l.o.metrics.revokeFailed.Inc()
			l.failedPart(troubleRelease, p.id, f.Err)
			l.pause(p, f.Err)
			if p.badSince.IsZero() {
				p.badSince = time.Now()
			}
			if time.Since(p.badSince) > inc.Timeout() {
				// Nobody shall wait for ever.
				l.o.session.GiveUp(operr.Because(ErrStuck, f.Err))
			}
		default:
			p.held = heldUnsure
			l.warn(troubleUnsure, p.id.String(), operr.New("", "release without a clear answer", "", f.Err))
			if p.failures++; p.failures > 2 {
				l.pause(p, f.Err)
			}
		}
	})
}

// scheduleSweep has the claims of this session listed in a session timeout.
func (l *loop) scheduleSweep(inc *session.Incarnation) {
	l.after(inc.Timeout(), func() {
		if l.inc != inc {
			return
		}
		began := time.Now()
		l.wg.Go(func() {
			names, anew, err := l.wire.List(l.io, inc)
			l.post(func() {
				switch {
				case l.inc != inc || !inc.Trusted() || errors.Is(err, session.ErrSessionExpired):
					// The next incarnation lists them. The end of this one is no trouble of the list.
				case err != nil:
					l.warn(troubleSweep, "", err)
				default:
					l.recovered(troubleSweep, "")
					l.revisit()
					l.sweep(names, began)
					if anew {
						l.checkSome()
					}
					l.countUnowned(names, began)
				}
				if l.inc == inc {
					l.reportBlocked() // again, as long as there are any
					l.judgeAll()
				}
				l.scheduleSweep(inc)
			})
		})
	})
}

var errUnlisted = errors.New("the claim is not among the group's")

// sweep compares the claims that stand with what we think we hold.
func (l *loop) sweep(names claims.Names, began time.Time) {
	for _, p := range l.parts {
		if p.busy != idle || names.Has(p.id) {
			continue
		}
		switch {
		case p.claim != nil && p.opened && p.openedAt.Before(began):
			l.onVanished(p, p.claim, errUnlisted)
		case p.claim == nil && p.held == heldOurs:
			p.held = heldUnsure
			l.step(p)
		}
	}
	for id, open := range l.sent {
		p := l.parts[id]
		switch {
		case !open:
		case p != nil && (p.busy != idle || p.held != heldNot):
		case names.Has(id):
			l.doubt(id) // another's, which is looked at once, or ours without our knowing
		default:
			l.sent[id] = false
		}
	}
}

// serversAge changes whenever the servers may have gone back to a backup.
type serversAge struct {
	history uint64
	epoch   int64
}

// ageOf returns the age of the servers as an incarnation sees it.
func ageOf(inc *session.Incarnation) serversAge {
	return serversAge{history: inc.History(), epoch: inc.LeaderEpoch()}
}

// revisit looks once at all claims that were sent in this ZooKeeper session, if the servers may have gone back to a backup:
// a claim that was released since stands again, and another member waits for it.
func (l *loop) revisit() {
	now := ageOf(l.inc)
	if l.servers == now {
		return
	}
	l.servers = now
	l.check(slices.Collect(maps.Keys(l.parts))) // what has gone back to an older claim of ours is not told by watches
	for id := range l.sent {
		if p := l.parts[id]; p == nil || p.busy == idle && p.held == heldNot {
			l.doubt(id)
		}
	}
}

// doubt has the claim of a partition looked at, of which we hold none as far as we know.
func (l *loop) doubt(id kiel.Partition) {
	p := l.part(id)
	p.held = heldUnsure
	l.step(p)
}
