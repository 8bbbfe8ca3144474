package ownership

import (
	"context"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/status"
)

// part is one partition: the state by which the machine decides, and what that state is about.
type part struct {
	machine.Part

	id       kiel.Partition
	claim    *Claim             // that is open or being announced, else nil
	znode    claims.Finding     // of the claim, while it is ours
	stop     context.CancelFunc // ends the wait for another's claim
	started  time.Time          // when the handler was called last
	asked    time.Time          // when it was to return
	overtime *time.Timer        // until its time for that is over

	failures int       // of requests, in a row
	returns  int       // of handlers that returned too early, in a row
	vanished int       // of claims that somebody ended before they were steady, in a row
	refused  time.Time // since when the release is refused
	freed    bool      // another's claim was waited for, and is gone

	notes
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

// turn is an input that a partition's machine has taken.
type turn struct {
	*part
	was   machine.Part
	claim *Claim // before
	in    machine.Input
	err   error // that came with the input
}

// lost returns why the turn loses an open claim, "" if it does not.
func (t turn) lost() status.Code {
	switch t.in {
	case machine.Distrust:
		return status.SessionLost
	case machine.Vanished, machine.VanishedAgain:
		return status.ClaimVanished
	case machine.Overtime:
		return status.Stuck
	default:
		return ""
	}
}

// view returns what holds for all partitions.
func (l *loop) view() machine.View {
	return machine.View{
		// The incarnation may have ended before the loop notices, and an empty plan may mean only that.
		Trusted: l.inc != nil && l.inc.Context().Err() == nil && l.inc.Trusted(),
		Planned: l.usable() && l.used == l.plan,
		Leaving: l.phase != working,
		Drained: l.phase == draining,
	}
}

// take has a partition's machine take an input, with the error that came with it, and does what is due then.
func (l *loop) take(p *part, in machine.Input, err error) {
	if l.parts[p.id] != p {
		return // forgotten
	}
	l.changed(p)
	t := turn{part: p, was: p.Part, claim: p.claim, in: in, err: err}
	var due []machine.Action
	p.Part, due = p.Next(l.view(), in)
	l.note(t)
	for _, a := range due {
		l.do(t, a)
	}
}

// takeAll has all partitions take an input.
func (l *loop) takeAll(in machine.Input, err error) {
	for _, p := range l.parts {
		l.take(p, in, err)
	}
}

// do does what the machine says.
func (l *loop) do(t turn, a machine.Action) {
	p := t.part
	switch a {
	case machine.SendClaim:
		l.claims.add(p)
	case machine.SendLook:
		l.looks.add(p)
	case machine.SendRelease:
		l.releases.add(p)
	case machine.Wait:
		l.wait(p)
	case machine.StopWaiting:
		p.stop()
	case machine.TellClaimed:
		l.announce(p)
	case machine.Start:
		l.start(p)
	case machine.Revoke:
		p.asked = time.Now()
		p.claim.revoke(ErrRevoked)
	case machine.End:
		t.claim.finish(t.cause())
		l.watch.Remove(p.id)
		l.noteEnd(t)
		p.claim = nil
	case machine.TellRevoking, machine.TellReleased, machine.TellLost:
		l.tell(t, a)
	case machine.ExpectReturn:
		if p.overtime == nil {
			l.expectReturn(p)
		}
	case machine.Pause:
		l.pause(t)
	case machine.Rest:
		l.rest(t)
	case machine.Forget:
		l.noteForgotten(p)
		delete(l.parts, p.id)
	}
}

// pause keeps a partition from requests for a while.
func (l *loop) pause(t turn) {
	var d time.Duration
	if t.in == machine.VanishedAgain {
		d, t.trouble = min(backoff(t.vanished-1), vanishedPause), t.cause()
	} else {
		t.failures++
		d, t.trouble = backoff(t.failures), t.err
	}
	l.after(d, func() {
		t.trouble = nil
		l.take(t.part, machine.Unpaused, nil)
	})
}

// rest keeps a partition from handlers for a while.
func (l *loop) rest(t turn) {
	if time.Since(t.started) > steady {
		t.returns = 0
	}
	t.returns++
	l.after(backoff(t.returns), func() {
		if t.part.claim == t.claim {
			l.take(t.part, machine.Rested, nil)
		}
	})
}
