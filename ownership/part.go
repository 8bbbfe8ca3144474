package ownership

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// held is what the loop knows of a partition's claim in this ZooKeeper session.
type held int

const (
	heldNot    held = iota // no claim of ours stands
	heldUnsure             // possibly one does: a request without an answer, a link that was lost
	heldOurs               // one does
)

// busy is what is under way for a partition. While something is, nothing else is
// begun; its end comes to the loop as an input.
type busy int

const (
	idle       busy = iota
	claiming        // queued or sent
	looking         // queued or sent
	releasing       // queued or sent
	waiting         // for another's claim to go
	announcing      // the observer is told of Claimed
	closing         // the observer is told of Released or Lost, before the release
)

// part is the loop's state of one partition. The znode (held, busy) and the
// handler (claim, running) are apart: a handler may run on when its claim is lost,
// and a claim may stand before its handler starts.
type part struct {
	id   kiel.Partition
	want bool      // the newest plan gives it to us, and it can be claimed
	due  time.Time // since when it is wanted and not open
	// level is that of the log lines about its moves: few at once are told one by one.
	level slog.Level

	held     held
	znode    claims.Finding       // what is known of the claim while it is ours
	foundIn  *session.Incarnation // in which that was found
	busy     busy
	stop     context.CancelFunc // ends waiting
	outdated bool               // the claim was not sent, because a newer plan or the end of trust is on its way
	noRoom   bool               // the session has no room for the claim
	paused   bool               // no request before the pause is over
	failures int                // of requests, in a row
	vanished int                // of claims that a third party ended before they were steady, in a row
	badSince time.Time          // when releasing it failed first
	late     bool               // another's claim has been waited for longer than its owner may drain
	holder   string             // of the claim that was waited for last, since ours ended, cut; "" when nobody is known
	again    status.Code        // why the last claim of ours ended, unless it was handed over
	between  bool               // another may have owned it since then: the session, or the plan, was another
	origin   origin             // of the claim that was sent last, or stands
	trouble  error              // why there is a pause

	other        standing                // what stands in the claim's place, while it is waited for
	blocked      status.DisagreementKind // why that does not go as a member's claim does; "" if it does
	strange      int64                   // the czxid of what was waited for last
	strangeSince time.Time               // since when its session is known to be no member's; zero while it may be one's

	claim    *Claim // stands; nil when none, or lost, or being released
	opened   bool   // Claimed was told of it
	telling  bool   // Claimed of it, or of one that is lost, waits for the observer; meanwhile no other is opened
	openedAt time.Time
	wait     time.Duration // from the plan to openedAt
	revoked  bool          // its handler was told to finish
	next     string        // to whom the plan gave it when it was revoked last
	goes     status.Reason // and why
	drained  time.Duration // from then to the end of the claim

	running   bool        // a handler runs, be it of claim or of one that is lost
	stuck     bool        // … and its time is over
	startedAt time.Time   // when the handler was called last
	endedAt   time.Time   // when its context ended
	overtime  *time.Timer // until its time is over
	resting   bool        // no handler before the pause is over
	returns   int         // of handlers that should not have, in a row

	toClaim, toRevoke, unsettled, behindStuck, awaited bool // as counted by the loop
}

// part returns the state of a partition, made when it has none.
func (l *loop) part(id kiel.Partition) *part {
	p := l.parts[id]
	if p == nil {
		p = &part{id: id}
		l.parts[id] = p
	}
	return p
}

// keep says whether a partition that is open stays open.
func (l *loop) keep(p *part) bool { return p.want && l.phase != draining }

// planned says whether the plan can be acted on: it was made under the
// incarnation that is trusted now. When that one has ended, the loop is about to
// hear of it, and a plan that gives us nothing means only that.
func (l *loop) planned() bool {
	return l.plan != nil && l.inc != nil && l.plan.inc == l.inc && l.inc.Context().Err() == nil
}

// mayTake says whether a partition may be claimed and opened.
func (l *loop) mayTake(p *part) bool { return p.want && l.phase == working && l.planned() }

// unwanted says whether a claim that stands is to be released. Without a plan
// that can be acted on nothing is said.
func (l *loop) unwanted(p *part) bool { return l.phase == draining || !p.want && l.planned() }

// forget drops a partition's state.
func (l *loop) forget(p *part) {
	l.setRoom(p, true)
	if l.refused[p.id] == nil { // else that one goes on
		l.o.troubles.Gone(p.id.String())
	}
	delete(l.parts, p.id)
}

// step begins what is to be done next for a partition, if anything.
func (l *loop) step(p *part) {
	if l.parts[p.id] != p {
		return // forgotten
	}
	l.advance(p)
	l.account(p)
}

func (l *loop) advance(p *part) {
	if p.busy == waiting && !l.keep(p) {
		p.stop()
	}
	if p.busy != idle {
		return
	}
	switch {
	case p.claim != nil:
		l.advanceClaim(p)
	case p.running && !p.stuck:
		// Its claim is lost; it has its time to return.
	case p.held == heldUnsure && !p.paused:
		l.looks.add(p, looking)
	case p.held == heldOurs && (p.running || p.znode.Foreign || l.unwanted(p)):
		if !p.paused {
			l.releases.add(p, releasing)
		}
	case p.held == heldOurs && l.mayTake(p) && p.foundIn != l.inc: // somebody may have changed it meanwhile
		p.held = heldUnsure
		l.advance(p)
	case p.held == heldOurs && l.mayTake(p):
		if !p.telling {
			l.open(p)
		}
	case p.held != heldNot || p.running:
		// Nothing can be done now.
	case l.mayTake(p):
		if !p.paused && !p.noRoom && !p.outdated {
			l.claims.add(p, claiming)
		}
	case !l.keep(p) && !p.telling:
		l.forget(p)
	}
}

// advanceClaim goes on with a claim that stands.
func (l *loop) advanceClaim(p *part) {
	if !p.revoked && l.keep(p) {
		if p.opened && !p.running && !p.resting && p.claim.ctx.Err() == nil {
			l.start(p)
		}
		return
	}
	if !p.revoked {
		l.revoke(p)
	}
	// A claim that is not trusted any more is lost, whatever its handler could still do: onDistrust is on its way.
	if !p.running && p.claim.Trusted() {
		l.closeClaim(p, Released, ErrRevoked)
	}
}

// queue holds parts that wait for a request of one sort.
type queue struct {
	parts   []*part
	workers int // at work
}

func (q *queue) add(p *part, b busy) {
	p.busy = b
	q.parts = append(q.parts, p)
}

// account keeps the loop's counters, and times the stages of a rebalance by them.
func (l *loop) account(p *part) {
	live := l.parts[p.id] == p
	held := p.claim != nil || p.held != heldNot || p.busy != idle
	l.count(&l.toClaim, &p.toClaim, live && l.keep(p) && !p.opened, &l.claimSince, l.o.metrics.claimStage)
	l.count(&l.toRevoke, &p.toRevoke, live && (!l.keep(p) || p.revoked) && (held || p.running && !p.stuck), &l.revokeSince, l.o.metrics.revokeStage)
	var since time.Time
	l.count(&l.unsettled, &p.unsettled, live && (held || p.running && !p.stuck), &since, nil)
	if behind := live && p.stuck && p.want; behind != p.behindStuck {
		l.count(&l.behindStuck, &p.behindStuck, behind, &since, nil)
		l.o.metrics.unclaimed.WithLabelValues(reasonStuck).Set(float64(l.behindStuck))
	}
	l.count(&l.awaited, &p.awaited, live && l.keep(p) && !p.opened && !p.noRoom && !p.late && !p.stuck, &since, nil)
}

func (l *loop) count(n *int, was *bool, is bool, since *time.Time, stage prometheus.Observer) {
	if *was == is {
		return
	}
	*was = is
	if is {
		if *n == 0 {
			*since = time.Now()
		}
		*n++
		return
	}
	*n--
	if *n == 0 && stage != nil {
		stage.Observe(time.Since(*since).Seconds())
	}
}

// setRoom notes whether the session has room for a claim.
func (l *loop) setRoom(p *part, room bool) {
	if p.noRoom != room {
		return
	}
	p.noRoom = !room
	if room {
		l.full--
	} else {
		l.full++
	}
	l.o.metrics.unclaimed.WithLabelValues(reasonBudget).Set(float64(l.full))
}

// setStuck notes whether a handler is stuck.
func (l *loop) setStuck(p *part, stuck bool) {
	if p.stuck == stuck {
		return
	}
	p.stuck = stuck
	if stuck {
		l.stuck++
	} else {
		l.stuck--
	}
	l.o.metrics.stuck.Set(float64(l.stuck))
}

// pause keeps a partition from requests for a while, because of err, which is one more failure in a row.
func (l *loop) pause(p *part, err error) {
	p.failures++
	l.pauseFor(p, backoff(p.failures), err)
}

// pauseFor keeps a partition from requests for d, because of err.
func (l *loop) pauseFor(p *part, d time.Duration, err error) {
	p.paused, p.trouble = true, err
	l.after(d, func() {
		p.paused, p.trouble = false, nil
		l.step(p)
	})
}
