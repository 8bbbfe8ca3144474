package consumer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// driver leads the sessions of a membership: it gives the machine of package sessions its inputs, one after the other, and does
// at once what that says. Nothing that it does blocks or calls the program's code, so every goroutine may give an input.
type driver struct {
	member *membership

	mu       sync.Mutex
	state    sessions.State
	numbers  map[kiel.Partition]int
	seats    []seat // by the partition's number
	timers   [sessionTimers]timer
	call     *consumeSession // of the running call; nil between two
	begun    time.Time       // when Setup was called last
	ended    time.Time       // when the session has ended last
	left     time.Time       // when the member has begun to leave
	first    time.Time       // when the member, without any claim, got one last
	age      time.Duration   // how old a session has to be for a gain to end it
	pause    time.Duration   // from the last call of Setup to the next one, if a ConsumeClaim ends the session, or reading
	unread   bool            // reading has ended by itself within that pause
	trusting *session.Incarnation
	forget   func() bool // stops the wait for the end of trusting; nil before the first
	cause    error       // why the input was given that is being worked on
	asked    bool        // the program has asked for an orderly stop
}

// seat is a partition, and the running call of own for it; nil when there is none.
type seat struct {
	tp     kiel.Partition
	runner *opening
}

// timer is a timer of the machine.
type timer struct {
	*time.Timer // nil when it does not run

	since, at time.Time // when it has begun, and when it ends
}

const sessionTimers = sessions.BackOver + 1 - sessions.WaitOver

// The times of sessions. A gain ends no session that is younger than an age: minAge, doubled by each session that is younger when
// it ends, up to maxAge.
const (
	// claimsWait is how long a call that has a claim waits for the others, and a session goes on without claims that its member
	// holds. A call that has none holds nobody up, and waits for as long as a rebalance may take, as sarama's does; if that is
	// very short, for maxAge.
	claimsWait = time.Second

	minAge = time.Second
	maxAge = 10 * time.Second

	// maxPause is how long an eager session is, once reading of a partition ends again and again. What can't be read now may
	// never be read, and each end of a session stops the member's other partitions, too.
	maxPause = time.Minute
)

// newDriver returns the driver of a membership. begun is when Setup was called last, in an earlier membership, if the next
// session has to wait for sessionPause since then; else it is zero.
func newDriver(m *membership, begun time.Time) *driver {
	d := &driver{member: m, numbers: map[kiel.Partition]int{}, begun: begun, pause: sessionPause}
	if time.Since(begun) < sessionPause {
		d.state.Paused, d.state.Cause = true, sessions.Exited
	}
	return d
}

// give gives an input that has no cause.
func (d *driver) give(in sessions.Input) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step(in, nil)
}

// step gives an input, with its cause if it has one. d.mu is held.
func (d *driver) step(in sessions.Input, cause error) {
	d.cause = cause
	for _, a := range d.state.Step(in) {
		d.act(a)
	}
	d.setTimers()
}

// begin makes s the running call. It returns false if the member is leaving.
func (d *driver) begin(s *consumeSession) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state.Phase != sessions.Between || d.state.Leaving || d.member.ctx.Err() != nil {
		return false
	}
	d.call = s
	d.step(sessions.Input{What: sessions.Consume, Kind: s.kind}, nil)
	return true
}

// current returns the running call, or nil.
func (d *driver) current() *consumeSession {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.call
}

// stopAsked is stop, for a program that asks for an orderly stop.
func (d *driver) stopAsked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = true
	d.step(sessions.Input{What: sessions.Stop}, nil)
}

// gaveUp reports whether something has not returned in its time.
func (d *driver) gaveUp() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Over
}

// stop makes the member leave.
func (d *driver) stop() { d.give(sessions.Input{What: sessions.Stop}) }

// end says that ownership has ended. It returns the running call, or nil.
func (d *driver) end() *consumeSession {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.call
	d.step(sessions.Input{What: sessions.Ended}, ownership.ErrStopped)
	if d.forget != nil {
		d.forget()
	}
	return last
}

// isOver reports whether ownership has ended: no partition is open but stuck ones.
func (d *driver) isOver() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Alone
}

// plan gives the newest mapping of the allocator.
func (d *driver) plan(s *allocator.Snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state.Alone || !s.Joined || s.Incarnation == nil || !s.Incarnation.Trusted() { // that one is known to have ended, or soon will be
		d.step(sessions.Input{What: sessions.Distrust}, nil)
		return
	}
	if d.trusting != s.Incarnation {
		if d.forget != nil {
			d.forget()
		}
		d.trusting = s.Incarnation
		d.forget = context.AfterFunc(s.Incarnation.Context(), func() { d.distrust(s.Incarnation) })
	}
	in := sessions.Input{What: sessions.Plan}
	for _, p := range s.Mine() {
		if d.member.accept(p) == nil {
			in.Mine = append(in.Mine, d.number(p))
		}
	}
	d.step(in, nil)
}

func (d *driver) distrust(inc *session.Incarnation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trusting == inc {
		d.step(sessions.Input{What: sessions.Distrust}, nil)
	}
}

// number returns the number of a partition. d.mu is held.
func (d *driver) number(p kiel.Partition) int {
	n, ok := d.numbers[p]
	if !ok {
		n = len(d.numbers)
		d.numbers[p] = n
		d.seats = append(d.seats, seat{tp: p})
	}
	return n
}

// about gives an input about a partition.
func (d *driver) about(p kiel.Partition, what sessions.What) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step(sessions.Input{What: what, P: d.number(p)}, nil)
}

// claimed gives the claim of o, and what becomes of it, until the function is called that it returns.
func (d *driver) claimed(o *opening) (returned func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.number(o.tp)
	d.seats[n].runner = o
	if !d.state.Holds() {
		d.first = time.Now()
	}
	d.step(sessions.Input{What: sessions.Claimed, P: n}, nil)
	stop := context.AfterFunc(o.work, func() { d.gone(o) })
	stopLost := context.AfterFunc(o.claim.Context(), func() { d.gone(o) })
	return func() {
		stop()
		stopLost()
		d.of(o, sessions.Lost, nil) // unless it was released
		d.of(o, sessions.Returned, nil)
	}
}

// of gives an input about the partition of o, unless its call of own was told to return.
func (d *driver) of(o *opening, what sessions.What, cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.number(o.tp)
	if d.seats[n].runner != o {
		return
	}
	d.step(sessions.Input{What: what, P: n}, cause)
}

// readingEnded is called when Messages of a partition is about to be closed in an eager session: if that ends the session, it has
// ended when readingEnded returns.
func (d *driver) readingEnded(p kiel.Partition) {
	if o := d.runner(p); o != nil && !d.gone(o) {
		d.mu.Lock()
		d.unread = d.unread || d.state.Paused
		d.mu.Unlock()
		d.of(o, sessions.ByItself, nil)
	}
}

// returned is called when the opening of a partition has ended.
func (d *driver) returned(o *opening) {
	d.gone(o)
	d.of(o, sessions.Returned, nil)
}

// gone gives the end of a claim, if that has ended: what follows from it must not come before. It reports whether it has ended.
func (d *driver) gone(o *opening) bool {
	switch {
	case o.claim.Context().Err() != nil:
		d.of(o, sessions.Lost, context.Cause(o.claim.Context()))
	case o.work.Err() != nil:
		d.of(o, sessions.WasRevoked, context.Cause(o.work))
	case !o.claim.Trusted():
		d.of(o, sessions.Lost, errUntrusted)
	default:
		return false
	}
	return true
}

// runner returns the running call of own for a partition, or nil.
func (d *driver) runner(p kiel.Partition) *opening {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seats[d.number(p)].runner
}

// act does what the machine says. d.mu is held.
func (d *driver) act(a sessions.Action) {
	switch a.Do {
	case sessions.CallSetup:
		d.callSetup(a.Claims)
	case sessions.Open:
		d.seats[a.P].runner.order(toOpen, d.call)
	case sessions.Commit:
		d.seats[a.P].runner.order(toCommit, d.call)
	case sessions.Release:
		d.seats[a.P].runner.order(toRelease, nil)
		d.seats[a.P].runner = nil
	case sessions.EndSession:
		d.ended = time.Now()
		d.grow()
		d.call.close(d.why(a.Cause), d.state.Kind.Eager || !d.state.Leaving)
	case sessions.CallCleanup:
		d.callCleanup()
	case sessions.GiveUp:
		d.call.stuck = d.unreturned()
	case sessions.Leave:
		d.left = time.Now()
		d.leave()
	case sessions.Return:
		if d.state.Over {
			d.reportAbandoned()
		}
		d.call.finish(a.Cause)
		if d.state.Phase != sessions.Out { // else the call returns when the member has left
			d.call = nil
		}
	}
}

// grow sets the age that the next session has to have for a gain to end it.
func (d *driver) grow() {
	if d.ended.Sub(d.begun) < max(d.age, minAge) {
		d.age = min(2*max(d.age, minAge), maxAge)
	} else {
		d.age = minAge
	}
}

// setPause sets the pause of a session that begins. It is sessionPause, and doubles from session to session, up to maxPause,
// while reading of a partition ends within it.
func (d *driver) setPause() {
	if d.unread {
		d.pause = min(2*d.pause, maxPause)
	} else {
		d.pause = sessionPause
	}
	d.unread = false
}

// callSetup calls Setup of the running call.
func (d *driver) callSetup(claims []int) {
	s, m := d.call, d.member
	d.begun = time.Now()
	d.setPause()
	m.group.setSetupAt(d.begun)
	ps := make([]kiel.Partition, 0, len(claims))
	for _, n := range claims {
		ps = append(ps, d.seats[n].tp)
	}
	s.expect(ps, m.snapshot())
	m.users.goUntil(m.deadline, callSetup, s.user.setup, func(err error) {
		s.setupEnded(err)
		what := sessions.SetupReturned
		if err != nil {
			what = sessions.SetupFailed
		}
		d.give(sessions.Input{What: what})
	})
}

// callCleanup calls Cleanup of the running call.
func (d *driver) callCleanup() {
	s, m := d.call, d.member
	m.users.goUntil(m.deadline, callCleanup, s.user.cleanup, func(err error) {
		s.over.Store(true)
		s.cleanupEnded(err)
		if !s.isEnd(err) {
			m.report.Failed(reporting.KindCleanup, "", err)
		}
		d.give(sessions.Input{What: sessions.CleanupReturned})
	})
}

// leave makes the member leave.
func (d *driver) leave() {
	var errs []error
	if d.call != nil {
		for _, up := range d.call.stuck {
			errs = append(errs, up.err)
		}
	}
	if len(errs) == 0 && d.asked {
		d.member.stopOrderly()
		return
	}
	d.member.leave(errors.Join(errs...))
}

// unreturned names what has not returned in its time.
func (d *driver) unreturned() (out []givenUp) {
	since := d.ended
	if back := d.timers[sessions.BackOver-sessions.WaitOver]; back.Timer != nil {
		since = back.since
	}
	for n, one := range d.seats {
		if one.runner != nil && d.state.Parts[n].Use == sessions.Stuck {
			out = append(out, givenUp{one.runner.stuckSince(since), one.runner.inHandler})
		}
	}
	if len(out) > 0 {
		return out
	}
	users := &d.member.users.Calls
	kinds := users.Kinds()
	if len(kinds) == 0 { // the program's code has returned, but Kafka has not answered
		err := stuck("the session was not closed %v after its end", time.Since(since))
		return []givenUp{{err, func() bool { return false }}}
	}
	err := stuck("%s has not returned for %v after the end of its session", strings.Join(kinds, ", "), time.Since(since))
	return []givenUp{{err, func() bool { return len(users.Kinds()) > 0 }}}
}

// reportAbandoned reports Setup or Cleanup, if it still runs.
func (d *driver) reportAbandoned() {
	for _, kind := range d.member.users.Kinds() {
		if kind == callSetup || kind == callCleanup {
			d.member.users.reportStuck(usercall.Callback{Kind: kind}, time.Since(d.ended))
		}
	}
}

// setTimers starts and stops the timers. d.mu is held.
func (d *driver) setTimers() {
	now := time.Now()
	for i := range d.timers {
		t, what := &d.timers[i], sessions.WaitOver+sessions.What(i)
		if !d.state.Waits(what) {
			if t.Timer != nil {
				t.Stop()
				*t = timer{}
			}
			continue
		}
		if t.Timer == nil {
			t.since = now
		}
		at := d.deadline(what, t.since)
		if t.Timer != nil && t.at.Equal(at) {
			continue
		}
		if t.Timer != nil {
			t.Stop()
		}
		t.at = at
		t.Timer = time.AfterFunc(max(0, time.Until(at)), func() { d.timeOver(what, at) })
	}
}

// timeOver gives the end of a timer, unless that was stopped, or set anew.
func (d *driver) timeOver(what sessions.What, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := &d.timers[what-sessions.WaitOver]; t.Timer == nil || !t.at.Equal(at) {
		return
	}
	if what == sessions.IdleOver {
		d.member.log.Warn("no Consume call followed the last one, leaving the group", "after", d.member.group.zk.Timeout())
	}
	d.step(sessions.Input{What: what}, nil)
}
