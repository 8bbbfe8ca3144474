package ownership

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// journal notes each turn of a machine, for log lines, metrics, events and status. It decides nothing.
type journal struct {
	counts, shown           [numCounts]int
	uncounted               []*part   // whose state was changed since they were counted
	claimSince, revokeSince time.Time // when the stages of the rebalance began
	fullTold                int       // parts of which the lack of room was reported
	blockedNews             bool      // a report of parts that are blocked is due in a moment
	vanishedAt              time.Time // when the first of the claims vanished that limitVanished counts
	vanishedCount           int
	unowned                 unowned
}

// notes are what the journal keeps of a partition.
type notes struct {
	level     slog.Level      // of the log lines about its moves: few at once have lines of their own
	due       time.Time       // since when it is wanted and not open
	took      time.Duration   // from then until it was
	drained   time.Duration   // from its revocation to the end of the claim
	next      string          // to whom the plan gave it when it was revoked last
	goes      status.Reason   // and why
	origin    origin          // of the claim that was sent last, or exists
	again     status.Code     // the code with which this member's last claim ended; "" after a release
	between   bool            // the session or the plan has changed since, so another member may have owned it
	trouble   error           // why there is a pause
	rests     error           // with which the handler has returned that is called again after a pause
	counted   [numCounts]bool // for what it is in the journal's counts
	uncounted bool            // it is among those of the journal
	obstacle
}

// note is called with each turn, before what it says is done.
func (l *loop) note(t turn) {
	switch t.in {
	case machine.PlanMine:
		if !t.was.Mine {
			t.due = time.Now()
		}
	case machine.PlanOther:
		t.between = t.between || t.was.Mine
	case machine.NewSession:
		t.refused, t.between = time.Time{}, true
	case machine.FoundOurs, machine.FoundForeign, machine.FoundTaken, machine.FoundGone, machine.Unanswered, machine.UnansweredAgain,
		machine.Unsent, machine.NoRoom, machine.Refused:
		l.noteAnswer(t)
	case machine.Vanished, machine.VanishedAgain:
		l.limitVanished(t.part)
		l.failedPart(troubleVanished, t.id, operr.New("", "", t.id.String(), t.cause()))
	case machine.Overtime:
		l.o.metrics.drainTimeouts.Inc()
		l.o.metrics.revokeFailed.Inc()
	case machine.Returned:
		l.noteReturn(t)
	default:
	}
}

// noteAnswer notes the outcome of a request or a wait. One of a session that is over says nothing.
func (l *loop) noteAnswer(t turn) {
	switch {
	case t.was.Claim == machine.Waiting:
		l.noteWait(t)
	case t.was.Stale:
	case t.was.Claim == machine.Claiming:
		l.noteClaim(t)
	case t.was.Claim == machine.Looking && t.in == machine.UnansweredAgain:
		l.warn(troubleUnsure, t.id.String(), t.err)
	case t.was.Claim == machine.Looking && t.in != machine.Unsent:
		l.recovered(troubleUnsure, t.id.String())
	case t.was.Claim == machine.Releasing:
		l.noteRelease(t)
	}
}

// noteClaim notes the answer to a claim.
func (l *loop) noteClaim(t turn) {
	m, id := l.o.metrics, t.id.String()
	switch t.in {
	case machine.FoundOurs:
		m.claims.WithLabelValues(resultOK).Inc()
		l.recovered(troubleClaim, id)
	case machine.FoundTaken:
		l.recovered(troubleClaim, id)
	case machine.Unanswered:
		m.claims.WithLabelValues(resultUnknown).Inc()
		l.warn(troubleUnsure, id, operr.New("", "claim without an answer", "", t.err))
	case machine.Refused:
		m.claims.WithLabelValues(resultError).Inc()
		m.claimFailed.Inc()
		l.failedPart(troubleClaim, t.id, t.err)
	default:
	}
}

// noteRelease notes the answer to a release.
func (l *loop) noteRelease(t turn) {
	id := t.id.String()
	switch t.in {
	case machine.FoundGone:
		l.recovered(troubleRelease, id)
		l.o.log.Log(l.base, t.level, "released", "partition", id, "token", t.znode.Token, "drained", t.drained)
		t.drained = 0
	case machine.Refused:
		l.o.metrics.revokeFailed.Inc()
		l.failedPart(troubleRelease, t.id, t.err)
	case machine.Unanswered, machine.UnansweredAgain:
		l.warn(troubleUnsure, id, operr.New("", "release without a clear answer", "", t.err))
	default:
	}
}

// noteReturn notes that a handler has returned.
func (l *loop) noteReturn(t turn) {
	id, err := t.id.String(), t.err
	switch {
	case t.was.Handler == machine.Stuck:
		l.o.log.Info("stuck handler returned", "partition", id, "after", time.Since(t.asked))
		l.recovered(troubleStuck, id)
	case t.Handler == machine.Resting:
		if err == nil {
			err = errors.New("without an error")
		}
		t.rests = err
		l.failedPart(troubleHandler, t.id, operr.New("", "", id, operr.Because(ErrHandler, err)))
	case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrRevoked) && !errors.Is(err, ErrLost):
		if !errors.Is(err, ErrCallback) { // that one names the handler
			err = operr.New("", "handler of", id, err)
		}
		l.failedPart(troubleHandler, t.id, err)
	}
}

// noteOpen notes that the Observer has returned from Claimed: the claim is open from now on.
func (l *loop) noteOpen(p *part) {
	c := p.claim
	p.again, p.owner, p.took = "", "", time.Since(p.due)
	l.recovered(troubleVanished, p.id.String())
	l.o.metrics.moved.WithLabelValues(movedClaimed).Inc()
	l.o.metrics.claimWait.Observe(p.took.Seconds())
	l.o.board.put(c.info())
	l.o.log.Log(l.base, p.level, "claimed", "partition", p.id.String(), "token", c.token, "reason", c.origin.reason, "previous", c.origin.previous)
}

// noteEnd notes that a claim ends.
func (l *loop) noteEnd(t turn) {
	direction := movedRevoked
	if t.again = t.lost(); t.again != "" {
		direction = movedLost
	}
	if t.claim.isOpen() {
		l.o.metrics.moved.WithLabelValues(direction).Inc()
	}
	l.o.board.remove(t.id)
	t.drained = 0
	if t.again == "" || t.again == status.Stuck { // else its handler was not asked to finish
		t.drained = time.Since(t.asked)
	}
	t.due, t.origin, t.owner, t.between = time.Now(), origin{}, "", !t.Mine
}

// noteForgotten notes that nothing is left to know of a partition.
func (l *loop) noteForgotten(p *part) {
	if l.refusals[p.id] == nil { // else that one goes on
		l.o.troubles.Gone(p.id.String())
	}
}

// noteDistrust notes that an incarnation has ended, and with it all open claims.
func (l *loop) noteDistrust(inc *session.Incarnation, cause error) {
	l.o.metrics.showUnowned(0, time.Time{})
	l.say(Event{Kind: Untrusted, Session: inc.SessionID(), Version: l.version(), Since: inc.TrustEnd(), Err: cause, Reason: statuswrite.Reason(status.SessionLost)})
	stopped := 0
	for _, p := range l.parts {
		if p.claim != nil {
			stopped++
		}
	}
	l.o.log.Warn("session not trusted, partitions stopped", "partitions", stopped, "incarnation", inc.Number(), "error", cause)
}

// say has the Observer called with an event about no partition, after the events before.
func (l *loop) say(e Event) {
	e.Partition, e.Offset = -1, -1
	l.o.users.observeMerged(e)
}

// event is about a claim.
func (l *loop) event(kind EventKind, c *Claim, reason status.Reason, err error) Event {
	return Event{
		Kind: kind, Topic: c.id.Topic, Partition: c.id.ID, Token: c.token, Offset: -1,
		Version: max(c.version, l.version()), Session: c.inc.SessionID(), Err: err, Reason: reason,
	}
}

// tell has the Observer called with the next event of a claim that it knows. When it has returned, the turn's machine takes that
// as an input, if it waits for it.
func (l *loop) tell(t turn, a machine.Action) {
	e := l.event(Releasing, t.claim, t.goes, nil)
	switch a {
	case machine.TellRevoking:
		t.next, t.goes = l.destination(t.part)
		e.Kind, e.Reason, e.Next = Revoking, t.goes, t.next
		t.claim.revoking = true
		l.o.board.put(t.claim.info())
		l.o.log.Log(l.base, t.level, "revoking", "partition", t.id.String(), "token", t.claim.token, "next", t.next, "reason", t.goes)
	case machine.TellLost:
		e.Kind, e.Reason, e.Err = Lost, statuswrite.Reason(t.lost()), t.cause()
	default:
	}
	then := func() {}
	if a != machine.TellRevoking && t.Claim == machine.Closing {
		then = func() { l.take(t.part, machine.Told, nil) }
	}
	c := t.claim
	if !l.o.users.observed() {
		then()
		return
	}
	l.o.users.observe(e, func() bool { return c.said }, func() { l.post(then) })
}

func (l *loop) version() uint64 {
	if l.plan == nil {
		return 0
	}
	return l.plan.version
}

// count is something for which partitions are counted.
type count int

// The counts.
const (
	toClaim     count = iota // in the first stage of a rebalance
	toRevoke                 // in the other
	unsettled                // with a claim, or a handler that has its time to return
	awaited                  // without which the member is not ready
	stuck                    // with a stuck handler
	behindStuck              // … that are to be claimed
	noRoom                   // for which the session has no room
	behindStray              // behind znodes that no session owns
	behindOther              // behind other znodes that are no member's
	numCounts
)

// countsFor returns what a partition counts for.
func (p *part) countsFor(v machine.View) [numCounts]bool {
	open, late := p.Claim == machine.Open || p.Claim == machine.Revoked, p.Handler == machine.Stuck
	claimed := p.Claim != machine.Free || p.Handler != machine.None && !late
	return [...]bool{
		toClaim:     p.Keep(v) && !open,
		toRevoke:    (!p.Keep(v) || p.Claim == machine.Revoked) && claimed,
		unsettled:   claimed,
		awaited:     p.Keep(v) && !open && !p.NoRoom && !p.late && !late,
		stuck:       late,
		behindStuck: late && p.Mine,
		noRoom:      p.NoRoom,
		behindStray: p.by == status.PersistentClaim,
		behindOther: p.by != "" && p.by != status.PersistentClaim,
	}
}

// changed has a partition counted anew, before the counts are used.
func (l *loop) changed(p *part) {
	if !p.uncounted {
		p.uncounted = true
		l.uncounted = append(l.uncounted, p)
	}
}

// count counts anew the partitions that were changed: counting all of them each time would make a hand-over of many take long.
func (l *loop) count() {
	v := l.view()
	for _, p := range l.uncounted {
		var now [numCounts]bool
		if l.parts[p.id] == p { // else it is forgotten
			now = p.countsFor(v)
		}
		for c, counted := range p.counted {
			l.counts[c] += one(now[c]) - one(counted)
		}
		p.uncounted, p.counted = false, now
	}
	clear(l.uncounted)
	l.uncounted = l.uncounted[:0]
}

// one returns 1 for true.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// show shows which counts have changed.
func (l *loop) show() {
	l.count()
	was, n := l.shown, l.counts
	l.shown = n
	l.noteSettled()
	if n == was {
		return
	}
	stage(was[toClaim], n[toClaim], &l.claimSince, l.o.metrics.claimStage)
	stage(was[toRevoke], n[toRevoke], &l.revokeSince, l.o.metrics.revokeStage)
	if was[behindStray] > 0 && n[behindStray] == 0 {
		l.recovered(troublePersistent, "")
	}
	if was[behindOther] > 0 && n[behindOther] == 0 {
		l.recovered(troubleForeign, "")
	}
	l.o.metrics.stuck.Set(float64(n[stuck]))
	for c, reason := range map[count]string{
		behindStuck: reasonStuck, noRoom: reasonBudget, behindStray: reasonPersistent, behindOther: reasonForeign,
	} {
		l.o.metrics.unclaimed.WithLabelValues(reason).Set(float64(n[c]))
	}
}

// stage times a stage of a rebalance: from the moment when partitions are in it until none is.
func stage(was, now int, since *time.Time, took prometheus.Observer) {
	switch {
	case was == 0 && now > 0:
		*since = time.Now()
	case was > 0 && now == 0:
		took.Observe(time.Since(*since).Seconds())
	}
}
