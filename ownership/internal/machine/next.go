package machine

// Next returns the state after an input, under a view that has the input already, and what to do, in this order.
func (p Part) Next(v View, in Input) (Part, []Action) {
	p, do := p.apply(v, in)
	p, more := p.advance(v)
	return p, append(do, more...)
}

// mayOpen reports whether the partition may be claimed and opened.
func (p Part) mayOpen(v View) bool { return p.Mine && v.Trusted && v.Planned && !v.Leaving }

// Keep reports whether an open partition stays open.
func (p Part) Keep(v View) bool { return p.Mine && !v.Drained }

// unwanted reports whether a claim is to be released. Without a plan of this incarnation nothing is known.
func (p Part) unwanted(v View) bool { return v.Drained || !p.Mine && v.Trusted && v.Planned }

// HasClaim reports whether a claim is open, or about to be: its context has not ended.
func (p Part) HasClaim() bool { return p.Claim == Announcing || p.Claim == Open || p.Claim == Revoked }

// underWay reports whether something is under way whose outcome depends on the session in which it began.
func (c Claim) underWay() bool {
	return c == Claiming || c == Waiting || c == Looking || c == Closing || c == Releasing
}

// before returns the state in which a request became due.
func (c Claim) before() Claim {
	switch c {
	case Looking:
		return Unsure
	case Releasing:
		return Ours
	default:
		return Free
	}
}

// Due reports whether a request that is queued is still to be sent. One that was queued in an earlier incarnation is not.
func (p Part) Due(v View) bool {
	switch {
	case p.Stale, p.Late:
		return false
	case p.Claim == Claiming:
		return p.mayOpen(v)
	case p.Claim == Releasing:
		return p.toRelease(v)
	default:
		return p.Claim == Looking
	}
}

// toRelease reports whether a claim of ours is to be released.
func (p Part) toRelease(v View) bool { return p.Handler == Stuck || p.Foreign || p.unwanted(v) }

// apply takes note of an input.
func (p Part) apply(v View, in Input) (Part, []Action) {
	switch in {
	case PlanMine, PlanOther:
		p.Mine, p.Tried = in == PlanMine, false
	case Trust, NewSession, Distrust, SessionEnd:
		return p.applySession(in)
	case FoundOurs, FoundForeign, FoundTaken, FoundGone, Unanswered, UnansweredAgain, Unsent, NoRoom, Refused:
		return p.applyAnswer(v, in)
	case Returned, Overtime, Rested:
		return p.applyHandler(v, in)
	case Vanished, VanishedAgain:
		return p.applyVanished(in)
	case Doubted:
		if p.Claim == Free || p.Claim == Ours {
			p.Claim = Unsure
		}
	case Announced:
		p.Telling = false
		if p.Claim == Announcing {
			p.Claim = Open
		}
	case Told:
		p = p.answer(Ours)
	case Unpaused:
		p.Paused = false
	case Room:
		p.NoRoom = false
	default:
	}
	return p, nil
}

// applySession takes note of what happened to the session. What existed in a ZooKeeper session that is over is gone.
func (p Part) applySession(in Input) (Part, []Action) {
	if in == NewSession || in == SessionEnd {
		p.NoRoom, p.Stale = false, p.Claim.underWay()
		if p.Stale {
			return p, nil
		}
		return p.drop(Free)
	}
	p.Late = p.Claim.underWay()
	if p.HasClaim() || p.Claim == Ours {
		return p.drop(Unsure) // somebody may end it while nothing is watched
	}
	return p, nil
}

// applyAnswer takes note of the outcome of a request or a wait.
func (p Part) applyAnswer(v View, in Input) (Part, []Action) {
	before := p.Claim.before()
	p.Tried = p.Tried && in == Unsent
	switch in {
	case FoundOurs, FoundForeign:
		p = p.answer(Ours)
		p.Foreign = p.Claim == Ours && in == FoundForeign
	case FoundTaken:
		if p = p.answer(Free); p.mayOpen(v) {
			p.Claim = Waiting
			return p, []Action{Wait}
		}
	case FoundGone:
		p = p.answer(Free)
	case Unanswered:
		p = p.answer(Unsure)
	case UnansweredAgain:
		return p.answer(Unsure).pause()
	case Unsent:
		p = p.answer(before)
	case NoRoom:
		p.NoRoom = !p.Stale
		p = p.answer(Free)
	case Refused:
		return p.answer(before).pause()
	default:
	}
	return p, nil
}

// applyVanished: somebody has removed an open claim, or changed its znodes.
func (p Part) applyVanished(in Input) (Part, []Action) {
	p, do := p.drop(Unsure)
	do = append(do, TellLost)
	if in == VanishedAgain {
		p, more := p.pause()
		return p, append(do, more...)
	}
	return p, do
}

// applyHandler takes note of what the handler does.
func (p Part) applyHandler(v View, in Input) (Part, []Action) {
	switch in {
	case Returned:
		if p.Claim == Open && v.Trusted { // else Distrust is on its way, and why it has returned
			p.Handler = Resting
			return p, []Action{Rest}
		}
		p.Handler = None
	case Overtime:
		p.Handler = Stuck
		if p.Claim == Revoked {
			p.Claim = Closing
			return p, []Action{End, TellLost}
		}
	case Rested:
		if p.Handler == Resting {
			p.Handler = None
		}
	default:
	}
	return p, nil
}

// answer ends what was under way. In a session that is over it has found nothing, and in a later incarnation it proves no claim.
func (p Part) answer(found Claim) Part {
	switch {
	case p.Stale:
		found = Free
	case p.Late && found == Ours:
		found = Unsure
	}
	p.Foreign = p.Foreign && found == Ours
	p.Stale, p.Late, p.Claim = false, false, found
	return p
}

// pause keeps the partition from requests for a while.
func (p Part) pause() (Part, []Action) {
	p.Paused = true
	return p, []Action{Pause}
}

// drop loses an open claim, if there is one. Its handler has its time to return.
func (p Part) drop(to Claim) (Part, []Action) {
	var do []Action
	if p.HasClaim() {
		do = append(do, End)
	}
	p.Telling = p.Telling || p.Claim == Announcing
	p.Claim = to
	switch p.Handler {
	case Running:
		p.Handler = Lost
		do = append(do, ExpectReturn) // unless its time runs already
	case Resting:
		p.Handler = None
	default:
	}
	return p, do
}

// advance begins what is due.
func (p Part) advance(v View) (Part, []Action) {
	switch p.Claim {
	case Waiting:
		if !p.Keep(v) {
			return p, []Action{StopWaiting}
		}
	case Open, Revoked:
		return p.advanceOpen(v)
	case Free, Unsure, Ours:
		return p.advanceIdle(v)
	default: // something is under way
	}
	return p, nil
}

// advanceOpen goes on with an open claim. If it is not trusted any more, Distrust is on its way.
func (p Part) advanceOpen(v View) (Part, []Action) {
	var do []Action
	if p.Claim == Open {
		if p.Keep(v) {
			if p.Handler == None && v.Trusted {
				p.Handler = Running
				return p, []Action{Start}
			}
			return p, nil
		}
		p.Claim = Revoked
		do = []Action{Revoke, TellRevoking}
		switch p.Handler {
		case Resting:
			p.Handler = None
		case Running:
			do = append(do, ExpectReturn)
		default:
		}
	}
	if p.Handler == None && v.Trusted {
		p.Claim = Closing
		do = append(do, End, TellReleased)
	}
	return p, do
}

// advanceIdle begins a request, if one is due.
func (p Part) advanceIdle(v View) (Part, []Action) {
	switch {
	case p.Handler == Lost: // it has its time to return
	case p.Claim == Unsure:
		return p.request(Looking, SendLook)
	case p.Claim == Ours && p.toRelease(v):
		return p.request(Releasing, SendRelease)
	case p.Claim == Ours:
		if p.mayOpen(v) && !p.Telling {
			p.Claim = Announcing
			return p, []Action{TellClaimed}
		}
	case p.Handler == Stuck: // no other handler before it has returned
	case p.mayOpen(v):
		if !p.NoRoom && !p.Tried && !p.Paused {
			p.Tried = true
			return p.request(Claiming, SendClaim)
		}
	case !p.Keep(v) && !p.Telling:
		return p, []Action{Forget}
	}
	return p, nil
}

func (p Part) request(c Claim, a Action) (Part, []Action) {
	if p.Paused {
		return p, nil
	}
	p.Claim = c
	return p, []Action{a}
}
