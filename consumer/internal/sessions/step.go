package sessions

// Step takes an input, and returns what to do, in this order.
func (s *State) Step(in Input) []Action {
	st := step{State: s}
	st.grow(in.P)
	head, part := s.Head, s.Parts[in.P]
	st.apply(in)
	for st.again = true; st.again; {
		st.again = false
		if s.Head != head || in.What == Plan || in.What == Ended { // more may be due for each partition
			for p := range s.Parts {
				st.advancePart(p)
			}
			s.counts = count(s.Parts)
		} else {
			st.advancePart(in.P)
			s.add(part, -1)
			s.add(s.Parts[in.P], 1)
		}
		head, part = s.Head, s.Parts[in.P]
		st.advance()
	}
	if s.Gained && !s.gained() {
		s.Gained = false
	}
	return st.do
}

// Waits reports whether the timer whose end is w runs now. A timer begins when Waits begins to be true; those of PauseOver and
// Aged begin with each CallSetup.
func (s *State) Waits(w What) bool {
	switch w {
	case WaitOver:
		return s.Phase == Waiting && s.Planned && s.Kind.Eager && !s.Waited
	case PauseOver:
		return s.Paused
	case Aged:
		return s.Young
	case GainOver:
		return !s.Gained && s.gained()
	case HalfOver:
		return !s.Half && (s.Phase == Ending || s.Phase == Cleaning)
	case AllOver:
		return s.Phase == Ending || s.Phase == Cleaning
	case IdleOver:
		return s.Phase == Between && !s.Leaving
	case BackOver:
		return s.Kind.Run && s.Phase == Running && s.overdue()
	default:
		return false
	}
}

// InSession reports whether a session goes on.
func (s *Head) InSession() bool { return s.Phase == InSetup || s.Phase == Running }

// Holds reports whether the member has claims.
func (s *State) Holds() bool { return s.holds > 0 }

// step is one call of Step.
type step struct {
	*State

	do    []Action
	again bool // something was done: more may be due
}

func (s *step) act(a Action) {
	s.do = append(s.do, a)
	s.again = true
}

// grow makes room for a partition.
func (s *step) grow(p int) {
	for p >= len(s.Parts) {
		s.Parts = append(s.Parts, Part{})
	}
}

// apply takes note of an input.
func (s *step) apply(in Input) {
	q := &s.Parts[in.P]
	switch in.What {
	case Plan:
		s.plan(in.Mine)
	case Distrust:
		s.Planned, s.Waited = false, false
	case Blocked:
		q.Blocked = q.Mine && q.Claim == Free
	case Claimed:
		q.Claim, q.Blocked = Held, false
	case WasRevoked:
		if q.Claim == Held {
			q.Claim = Revoked
			s.changed(q, Rebalance)
		}
	case Lost:
		s.lose(q)
	case Overtime:
		if q.Use == Runs {
			q.Use = Stuck
			s.lose(q)
		}
	case Ended:
		s.ended()
	default:
		s.applyCall(in, q)
	}
}

// applyCall takes note of what the program has done, and of the end of a timer.
func (s *step) applyCall(in Input, q *Part) {
	switch in.What {
	case Consume:
		s.Kind, s.Phase, s.Waited = in.Kind, Waiting, false
	case Stop, IdleOver:
		s.leave()
	case BackOver:
		s.act(Action{Do: GiveUp})
		s.leave()
	case SetupReturned, SetupFailed:
		s.setupReturned(in.What)
	case CleanupReturned:
		if s.Phase == Cleaning {
			s.Phase = Closing
		}
	case ByItself:
		s.Exiting = s.Exiting || s.Phase == Running && q.Use == Runs
	case Returned:
		s.returned(q)
	case Committed:
		if q.Use == Commits {
			q.Use = Idle
		}
	case WaitOver:
		s.Waited = s.Waited || s.Waits(WaitOver)
	case PauseOver:
		s.Paused = false
	case Aged:
		s.Young = false
	case GainOver:
		s.Gained = s.gained()
	case HalfOver:
		s.Half = s.Half || s.Waits(HalfOver)
	case AllOver:
		if s.Waits(AllOver) {
			s.over()
		}
	default:
	}
}

// plan takes note of a plan.
func (s *step) plan(mine []int) {
	s.Planned = true
	was := make([]bool, len(s.Parts))
	for p := range s.Parts {
		was[p], s.Parts[p].Mine = s.Parts[p].Blocked, false
		s.Parts[p].Blocked = false
	}
	for _, p := range mine {
		s.grow(p)
		s.Parts[p].Mine = true
		s.Parts[p].Blocked = p < len(was) && was[p]
	}
	for p := range s.Parts {
		if q := &s.Parts[p]; !q.Mine {
			s.changed(q, Rebalance)
		}
	}
}

func (s *step) setupReturned(how What) {
	switch {
	case s.Phase == Ending:
		s.Setting = false
	case s.Phase != InSetup: // it was abandoned
	case how == SetupFailed:
		s.end(Failed)
		s.Setting = false
	default:
		s.Phase = Running
	}
}

func (s *step) returned(q *Part) {
	switch {
	case q.Use == Stuck, q.Use == Runs && q.Claim == Gone:
		q.Use = Idle
	case q.Use == Runs:
		q.Use = Done
	}
}

// over gives up what has not returned in time. The rest is committed and released without Cleanup, and the member leaves.
func (s *step) over() {
	for p := range s.Parts {
		q := &s.Parts[p]
		switch {
		case q.Use == Runs:
			q.Use = Stuck
			s.lose(q)
		case q.Use == Done && s.Setting:
			q.Use = Idle // the marks of a Setup that has not returned have no effect
		}
	}
	s.Over, s.Setting, s.Phase = true, false, Closing
	s.act(Action{Do: GiveUp})
	s.leave()
}

// ended takes note that ownership has ended.
func (s *step) ended() {
	s.Alone = true
	for p := range s.Parts {
		q := &s.Parts[p]
		if q.Use == Runs {
			q.Use = Stuck
		}
		s.lose(q)
	}
	s.leave()
}

// lose takes note that a claim is gone. Nothing of it is committed any more.
func (s *step) lose(q *Part) {
	if q.Claim == Free {
		return
	}
	q.Claim = Gone
	s.changed(q, LostClaim)
	if q.Use == Listed || q.Use == Done || q.Use == Commits {
		q.Use = Idle
	}
}

// leave makes the member leave. A session ends before that.
func (s *step) leave() {
	if s.Leaving {
		return
	}
	s.Leaving = true
	if s.InSession() {
		s.end(Asked)
	}
	s.act(Action{Do: Leave})
}

// end ends the session.
func (s *step) end(cause Cause) {
	s.Setting = s.Phase == InSetup
	s.Phase, s.Cause, s.Half, s.Exiting = Ending, cause, false, false
	for p := range s.Parts {
		if q := &s.Parts[p]; q.Use == Listed {
			q.Use = Done // Setup may have marked it
		}
	}
	s.act(Action{Do: EndSession, Cause: cause})
}

// advancePart begins what is due for one partition.
func (s *step) advancePart(p int) {
	q := &s.Parts[p]
	switch {
	case q.Use == Idle && (q.Claim == Revoked || q.Claim == Gone):
		q.Claim = Free
		s.act(Action{Do: Release, P: p})
	case q.Claim == Held && s.Phase == Running && s.opens(q):
		q.Use = Runs
		s.act(Action{Do: Open, P: p})
	case q.Use == Done && (s.Phase == Closing || s.moves(q) && s.early()):
		q.Use = Commits
		s.act(Action{Do: Commit, P: p})
	}
}

// advance begins what is due for all.
func (s *step) advance() {
	switch {
	case s.InSession():
		if cause := s.mustEnd(); cause != None {
			s.end(cause)
		}
	case s.Phase == Waiting && !s.Leaving:
		if s.ready() {
			s.begin()
		}
	case s.Phase == Ending:
		s.awaitReturns()
	case s.Phase == Cleaning, s.Phase == Out, s.Phase == Closing && s.uses[Done]+s.uses[Commits] > 0:
	case s.Leaving:
		if s.holds == 0 {
			s.out()
		}
	case s.Phase == Closing:
		s.Phase = Between
		s.act(Action{Do: Return, Cause: s.Cause})
	}
}

// out ends it all. The call returns.
func (s *step) out() {
	cause := s.Cause
	if s.Phase == Waiting {
		cause = Asked // the cause is of the session before
	}
	if s.Phase != Between {
		s.act(Action{Do: Return, Cause: cause})
	}
	s.Phase, s.Paused, s.Young = Out, false, false
}

// awaitReturns calls Cleanup when all has returned, in an incremental session also when all last commits are over that are made
// before it: either marks of Cleanup count or not. A ConsumeClaim that is stuck when ownership has ended is not waited for.
func (s *step) awaitReturns() {
	switch {
	case s.Setting, s.uses[Runs] > 0, !s.Kind.Eager && s.uses[Commits] > 0:
	case s.uses[Stuck] == 0:
		s.Phase = Cleaning
		s.act(Action{Do: CallCleanup})
	case s.Alone:
		s.Phase, s.again = Closing, true
	}
}

// mustEnd returns why the session has to end now, or None. The end of an eager session by a loss is in changed.
func (s *step) mustEnd() Cause {
	switch {
	case s.Exiting && !s.Paused:
		return Exited
	case !s.Kind.Run && s.overdue():
		return TimedOut
	case !s.Young && s.gained() && (s.Gained || s.missing == 0):
		return Rebalance
	}
	return None
}

// ready reports whether Setup is called now. The pause is for programs that fail at once.
func (s *step) ready() bool {
	failed := s.Cause == Exited || s.Cause == Failed
	return s.Planned && (!s.Paused || !failed) && (!s.Kind.Eager || s.Waited || s.missing == 0)
}

// begin calls Setup.
func (s *step) begin() {
	var claims []int
	for p := range s.Parts {
		if s.takes(&s.Parts[p]) {
			claims = append(claims, p)
		}
	}
	s.Phase, s.Cause, s.Paused, s.Young = InSetup, None, true, s.Kind.Eager
	s.Waited, s.Gained, s.Half, s.Exiting = false, false, false, false
	s.act(Action{Do: CallSetup, Claims: claims})
}
