package machine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// world is a partition, its view, and what is true beside them, whatever the part takes for true.
type world struct {
	Part
	View
	Exists   bool  // a claim of this member exists in the present ZooKeeper session
	Begun    bool  // an incarnation has begun, and its end was not told: it may be trusted no more
	Closed   bool  // the session has ended for good
	Asked    Claim // the state in which something was begun that has no outcome yet, else Free
	Sent     bool  // that was sent, not only queued
	Stopped  bool  // that was stopped
	Early    bool  // that was begun in an earlier incarnation, or in none
	Old      bool  // that was begun in an earlier ZooKeeper session
	Proved   bool  // the claim was found ours by what was begun in this incarnation, and nothing speaks against it
	Theirs   bool  // … but its epoch another's
	Outdated bool  // a claim was sent, and since then nothing was found out, and no plan has come
	Valid    bool  // the context of a claim has not ended
	Opening  int   // how often the Observer was told Claimed and has not returned: at most two are counted
	Alive    bool  // a handler was called and has not returned
	Timed    bool  // its time to return runs
	Over     bool  // … and is over
	Pausing  int   // pauses between requests that run: at most two are counted
	Full     bool  // the session has no room
}

// Events beside the inputs, of which the part is not told.
const (
	flush  = inputs + iota // what is queued and due is sent
	ends                   // the incarnation is not trusted any more
	leaves                 // nothing new is claimed from now on
	events
)

// canCome reports whether something can happen: answers only to what was sent.
func canCome(w world, in Input) bool {
	asked := func(states ...Claim) bool { return w.Sent && slices.Contains(states, w.Asked) }
	switch in {
	case flush:
		return w.Asked != Free && !w.Sent && w.Due(w.View)
	case Unsent:
		return asked(Claiming, Waiting, Looking, Releasing) || w.Asked != Free && !w.Sent && !w.Due(w.View)
	case ends, leaves:
		return in == ends && w.Trusted || in == leaves && !w.Leaving
	case Trust, NewSession, SessionEnd:
		return !w.Begun && !w.Closed
	case PlanMine, PlanOther, Distrust, Doubted:
		return w.Begun
	case Viewed:
		return !w.Drained
	case FoundOurs, FoundTaken:
		return asked(Claiming, Looking)
	case FoundForeign:
		return asked(Looking)
	case NoRoom:
		return asked(Claiming)
	case Unanswered:
		return asked(Claiming, Releasing, Waiting) || asked(Looking) && w.Old
	case UnansweredAgain:
		return asked(Looking, Releasing)
	case FoundGone, Refused:
		return asked(Claiming, Waiting, Looking, Releasing)
	case Vanished, VanishedAgain:
		return w.Begun && w.Valid
	case Announced, Told:
		return in == Announced && w.Opening > 0 || in == Told && w.Asked == Closing
	case Returned:
		return w.Alive
	case Overtime:
		return w.Timed && !w.Over
	case Rested: // also of the rest of an earlier claim
		return true
	case Unpaused:
		return w.Pausing > 0
	default:
		return in == Room && w.NoRoom
	}
}

// viewAfter returns the view after something has happened.
func viewAfter(v View, in Input) View {
	switch in {
	case Trust, NewSession:
		v.Trusted, v.Planned = true, false
	case Distrust, SessionEnd:
		v.Trusted, v.Planned = false, false
	case ends:
		v.Trusted = false
	case PlanMine, PlanOther:
		v.Planned = true
	case leaves:
		v.Leaving = true
	case Viewed:
		v.Leaving, v.Drained = true, true
	default:
	}
	return v
}

// truths returns what may be true of the claim after something has happened: none if it can't happen in that truth.
func truths(w world, in Input) []bool {
	either, same, asked := []bool{true, false}, []bool{w.Exists}, w.Asked
	switch {
	case !canCome(w, in):
		return nil
	case in == NewSession, in == SessionEnd:
		return []bool{false}
	case in == Vanished, in == VanishedAgain: // somebody else's doing
		return either
	case in == Doubted && (w.Claim == Free || w.Claim == Ours): // what this member does not know
		return either
	case w.Old:
		return same
	case in == FoundOurs && asked == Claiming:
		return []bool{true}
	case in == FoundGone && asked == Releasing:
		return []bool{false}
	case (in == Unanswered || in == UnansweredAgain) && asked != Looking: // also a claim whose answer was lost
		return either
	case !w.Exists && (in == FoundOurs || in == FoundForeign):
		return nil
	case w.Exists && (in == FoundGone || in == FoundTaken || in == NoRoom):
		return nil
	case w.Exists && (in == Unsent || in == Refused) && (asked == Claiming || asked == Waiting):
		return nil
	}
	return same
}

// step is one transition.
type step struct {
	from, to world
	in       Input
	do       []Action
	broken   rules
}

func (s step) String() string { return fmt.Sprintf("%+v -%d-> %+v %v", s.from, s.in, s.to, s.do) }

// take has something happen, after which a claim exists or not.
func (w world) take(in Input, exists bool) step {
	s := step{from: w, in: in}
	w.View, w.Exists = viewAfter(w.View, in), exists
	switch in {
	case flush:
		s.broken.ofSending(w)
		w.Sent = true
	case ends, leaves:
	default:
		w = w.heard(in)
		w.Part, s.do = w.Next(w.View, in)
		for _, a := range s.do {
			if s.broken.ofAction(w, s, a); a == Forget {
				w = world{View: w.View, Exists: w.Exists, Begun: w.Begun, Closed: w.Closed}
			}
			w = w.did(a)
		}
	}
	s.to = w
	return s
}

// heard returns what is true when the part is about to be told of an input.
func (w world) heard(in Input) world {
	switch in {
	case Trust, NewSession, Distrust, SessionEnd:
		w.Begun, w.Closed = in == Trust || in == NewSession, in == SessionEnd
		w.Proved, w.Theirs, w.Early = false, false, w.Asked != Free
		if w.Outdated = w.Outdated && in == Distrust; in == NewSession || in == SessionEnd {
			w.Old, w.Full = w.Asked != Free, false
		}
	case PlanMine, PlanOther:
		w.Outdated = false
	case FoundOurs, FoundForeign, FoundTaken, FoundGone, Unanswered, UnansweredAgain, Unsent, NoRoom, Refused, Told:
		if in != Unsent && in != Refused && in != Told {
			w.Proved, w.Theirs = in == FoundOurs && !w.Early, in == FoundForeign && !w.Early
		}
		w.Full = w.Full || in == NoRoom && !w.Old
		w.Outdated = w.Outdated && in == Unsent
		w.Asked, w.Sent, w.Stopped, w.Early, w.Old = Free, false, false, false, false
	case Doubted:
		doubtful := w.Claim == Free || w.Claim == Ours
		w.Proved, w.Theirs = w.Proved && !doubtful, w.Theirs && !doubtful
	case Vanished, VanishedAgain:
		w.Proved, w.Theirs = false, false
	case Announced:
		w.Opening--
	case Returned:
		w.Alive, w.Timed, w.Over = false, false, false
	case Overtime:
		w.Over = true
	case Unpaused:
		w.Pausing--
	case Room:
		w.Full = false
	default:
	}
	return w
}

// did returns what is true after an action.
func (w world) did(a Action) world {
	switch a {
	case SendClaim:
		w.Asked, w.Outdated = Claiming, true
	case SendLook:
		w.Asked = Looking
	case SendRelease:
		w.Asked = Releasing
	case Wait:
		w.Asked, w.Sent = Waiting, true
	case StopWaiting:
		w.Stopped = true
	case TellClaimed:
		w.Opening, w.Valid = min(w.Opening+1, 2), true
	case TellReleased, TellLost:
		if w.Claim == Closing {
			w.Asked, w.Sent = Closing, true
		}
	case Start:
		w.Alive = true
	case End:
		w.Valid = false
	case ExpectReturn:
		w.Timed = true
	case Pause:
		w.Pausing = min(w.Pausing+1, 2)
	default:
	}
	return w
}

// explore returns all states that can be reached, and all transitions.
var explore = sync.OnceValues(func() (all []world, steps []step) {
	seen := map[world]bool{{}: true}
	all = []world{{}}
	for i := 0; i < len(all); i++ {
		w := all[i]
		for in := range events {
			for _, exists := range truths(w, in) {
				s := w.take(in, exists)
				steps = append(steps, s)
				if !seen[s.to] {
					seen[s.to] = true
					all = append(all, s.to)
				}
			}
		}
	}
	return all, steps
})

// rules are rules that a step has broken.
type rules []string

func (r *rules) add(broken bool, rule string) {
	if broken {
		*r = append(*r, rule)
	}
}

// report fails a test for each rule that is broken, with the first place where it is.
type report map[string]int

func (r report) add(t *testing.T, rule string, where any) {
	t.Helper()
	if r[rule]++; r[rule] == 1 {
		t.Errorf("%s: %+v", rule, where)
	}
}

// rulesOfState returns the rules that are broken in a state.
func rulesOfState(w world) (r rules) {
	r.add(w.Handler == Running && w.Claim != Open && w.Claim != Revoked || w.Handler == Resting && w.Claim != Open, "a handler may commit without a claim")
	r.add(w.Alive != (w.Handler == Running || w.Handler == Lost || w.Handler == Stuck), "a handler runs, and it is not known")
	r.add(w.Alive && w.Claim != Open && !w.Timed || w.Over != (w.Handler == Stuck), "a handler is to return, and its time does not run")
	r.add(w.Valid && (w.Handler == Lost || w.Handler == Stuck), "a claim is open beside an older handler")
	r.add(w.Valid && !w.Begun, "a claim is open without an incarnation")
	r.add(w.Valid != (w.Claim == Announcing || w.Claim == Open || w.Claim == Revoked), "a claim is open, and its context is not")
	r.add(w.Closed && w.Claim != Free && !w.Old, "a claim in a session that has ended for good")
	r.add(w.Exists && !w.Old && (w.Claim == Free || w.Claim == Waiting), "a claim exists that this member does not know of")
	r.add((w.Stale || w.Late) && w.Asked == Free, "stale without anything under way")
	r.add(w.Asked != Free && w.Claim != w.Asked || w.Asked == Free && w.Claim.underWay(), "what is under way is another thing")
	r.add(w.Opening > 1 || (w.Opening == 1) != (w.Claim == Announcing || w.Telling), "the Observer is at work, and it is not known")
	r.add(w.Full != w.NoRoom, "there is room, and it is not known")
	r.add(w.Paused && w.Pausing == 0, "a pause is over, and it is not known")
	return r
}

func TestRulesOfStates(t *testing.T) {
	all, steps := explore()
	reported := report{}
	for _, w := range all {
		for _, rule := range rulesOfState(w) {
			reported.add(t, rule, w)
		}
	}
	t.Logf("%d states, %d transitions", len(all), len(steps))
}

// mayTake reports whether a claim may be made, or opened.
func (w world) mayTake() bool { return w.Mine && w.Begun && w.Trusted && w.Planned && !w.Leaving }

// mayRelease reports whether a claim may be released, as far as is known.
func (w world) mayRelease() bool {
	return w.Drained || w.Trusted && w.Planned && !w.Mine || w.Over || w.Theirs
}

// ofAction adds the rules that an action breaks, in the state before it.
func (r *rules) ofAction(w world, s step, a Action) {
	switch a {
	case SendClaim, SendLook, SendRelease, Wait:
		r.ofRequest(w, s, a)
	case StopWaiting:
		r.add(w.Asked != Waiting || w.Mine && !w.Drained, "stopped waiting for what is wanted")
	case TellClaimed:
		r.add(w.Opening > 0, "told Claimed beside an older Claimed")
		r.add(w.Alive || w.Valid || !w.mayTake(), "opened")
		r.add(!w.Proved, "opened what is not proved to be ours")
	case Start:
		r.add(w.Claim != Open || !w.Valid || w.Opening > 0 || w.Alive || !w.Trusted || !w.Mine || w.Drained, "a handler was called")
		r.add(s.in == Returned, "a handler was called again at once")
	case Revoke, TellRevoking:
		r.add(!w.Valid || w.Mine && !w.Drained, "revoked what is kept")
	case TellReleased:
		r.add(!w.Trusted || w.Alive, "told that it is released")
		r.add(w.Valid, "told before its context ended")
	case TellLost:
		r.add(w.Valid, "told before its context ended")
	case End:
		r.add(!w.Valid, "ended without a claim")
	case ExpectReturn:
		r.add(!w.Alive, "expected to return without a handler")
	case Pause:
		r.add(s.in != UnansweredAgain && s.in != Refused && s.in != VanishedAgain, "a pause after what went well")
	case Rest:
		r.add(!w.Valid || !w.Trusted, "a rest without a claim")
	case Forget:
		r.add(w.Opening > 0 || w.Alive || w.Claim != Free || w.Mine && !w.Drained, "forgotten")
	}
}

// ofRequest is ofAction for requests, which are queued then, and waits.
func (r *rules) ofRequest(w world, s step, a Action) {
	in, of := s.in, s.from
	r.add(w.Asked != Free, "two requests at a time")
	r.add(in == UnansweredAgain || in == Refused || in == VanishedAgain, "a request at once after what did not work")
	r.add(a != Wait && w.Paused, "a request in a pause")
	r.add(a != Wait && !w.Due(w.View), "queued, and not due")
	switch a {
	case SendClaim:
		r.add(w.Alive || w.Valid || !w.mayTake(), "claimed")
		r.add(w.Full, "claimed without room")
		r.add(w.Outdated, "claimed again under the same plan")
		r.add(in == FoundTaken && !of.Old, "claimed what another has")
	case Wait:
		r.add(in != FoundTaken || !w.mayTake(), "waited for what is not wanted")
	case SendLook:
		r.add(in == FoundTaken || in == FoundGone || in == NoRoom, "looked at what is known")
		r.add(!of.Early && (in == FoundOurs || in == FoundForeign || in == Told), "looked at what is known")
		r.add((in == Unsent || in == Refused) && of.Asked != Looking && (of.Asked != Releasing || !of.Early), "looked at what is known")
	case SendRelease:
		r.add(w.Valid || w.Alive && !w.Over, "released under a handler")
		r.add(!w.Proved && !w.Theirs, "released what is not known to be ours")
		r.add(!w.mayRelease(), "released what is wanted, as far as is known")
	default:
	}
}

// ofSending adds the rules that are broken when what is queued is sent: meanwhile the view may have become another.
func (r *rules) ofSending(w world) {
	r.add(w.Early || w.Old || w.Closed, "sent in a later incarnation")
	r.add(w.Asked == Claiming && !w.mayTake(), "sent a claim that is not wanted")
	r.add(w.Asked == Releasing && !w.mayRelease(), "sent a release of what is wanted")
}

// ofStep adds the rules that a whole step breaks.
func (r *rules) ofStep(s step) {
	in, did := s.in, func(a Action) bool { return slices.Contains(s.do, a) }
	ended, session := s.from.Valid && !s.to.Valid, in == Trust || in == NewSession || in == Distrust || in == SessionEnd
	r.add((did(TellReleased) || did(TellLost)) != (ended && !session) || did(TellLost) && did(TellReleased), "a claim ended, and was told otherwise")
	r.add((in == Vanished || in == VanishedAgain || in == Overtime && ended) && !did(TellLost), "lost, and told otherwise")
	revoked := (s.from.Claim == Announcing || s.from.Claim == Open) && (s.to.Claim == Revoked || s.to.Claim == Closing)
	r.add(did(Revoke) != revoked || did(TellRevoking) != revoked, "revoked, and told otherwise")
	r.add(((in == UnansweredAgain || in == Refused) && !s.from.Old || in == VanishedAgain) && !did(Pause), "no pause after what did not work")
	left := s.to.Claim != Free || s.to.Alive || s.to.Opening > 0 || s.to.Mine && !s.to.Drained
	r.add(in < inputs && !left && !did(Forget), "nothing is left, and it is not forgotten")
}

func TestRulesOfSteps(t *testing.T) {
	_, steps := explore()
	reported := report{}
	for _, s := range steps {
		s.broken.ofStep(s)
		for _, rule := range s.broken {
			reported.add(t, rule, s)
		}
	}
}

// goal is where a partition must get to from any state on, when all goes well.
type goal struct {
	name     string
	from     func(w world) bool // in these states
	first    []Input            // that come, if they can come
	stubborn bool               // handlers that run do not return
	there    func(w world) bool
}

func TestEveryStateGetsThere(t *testing.T) {
	open := func(w world) bool { return w.Claim == Open && w.Handler == Running }
	gone := func(w world) bool {
		return w.Claim == Free && w.Opening == 0 && (w.Handler == None || w.Handler == Stuck)
	}
	living, always := func(w world) bool { return !w.Closed }, func(world) bool { return true }
	all, _ := explore()
	reported := report{}
	for _, g := range []goal{
		{"opened", func(w world) bool { return !w.Closed && !w.Leaving }, []Input{Trust, PlanMine}, false, open},
		{"opened under the plan that there is", func(w world) bool { return w.mayTake() && (w.Claim != Free || !w.Outdated) }, nil, false, open},
		{"given up for another's plan", living, []Input{Trust, PlanOther}, false, func(w world) bool { return gone(w) && !w.Alive }},
		{"given up for another's plan, under a handler", living, []Input{Trust, PlanOther}, true, gone},
		{"drained", always, []Input{Viewed}, false, func(w world) bool { return gone(w) && !w.Alive }},
		{"drained under a handler", always, []Input{Viewed}, true, gone},
	} {
		for _, from := range all {
			if !g.from(from) {
				continue
			}
			w := from
			take := func(in Input) {
				if truth := truths(w, in); len(truth) > 0 {
					w = w.take(in, truth[0]).to
				}
			}
			if w.Begun && !w.Trusted {
				take(Distrust)
			}
			for _, in := range g.first {
				take(in)
			}
			for range 40 {
				if g.there(w) {
					break
				}
				take(well(w, g))
			}
			if !g.there(w) {
				reported.add(t, "not "+g.name, []world{from, w})
			}
		}
	}
}

// well returns what happens next when all goes well.
func well(w world, g goal) Input {
	switch {
	case w.Alive && !w.Over && w.Timed && g.stubborn:
		return Overtime
	case w.Alive && !g.stubborn && w.Claim != Open:
		return Returned
	case w.Pausing > 0:
		return Unpaused
	case w.Opening > 0:
		return Announced
	case w.Handler == Resting:
		return Rested
	case w.Asked == Free:
		return Room
	case w.Asked == Closing:
		return Told
	case !w.Sent && w.Due(w.View):
		return flush
	case !w.Sent, w.Asked == Waiting && (w.Stopped || w.Early):
		return Unsent
	case w.Asked == Waiting && !w.mayTake(): // another's claim does not go
		return flush
	case w.Asked == Claiming, w.Asked == Looking && w.Exists:
		return FoundOurs
	default:
		return FoundGone
	}
}
