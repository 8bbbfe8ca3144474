package sessions

// Here eager and incremental sessions differ: in what Setup is told, what is opened, what ends the session, and when a partition
// that moves is committed and released. Besides, only an eager call waits for its claims (ready).

// takes reports whether Setup is told of a partition: in an eager session of what is held, which is in use from then on; in an
// incremental one also of what is planned.
func (s *State) takes(q *Part) bool {
	if !s.Kind.Eager {
		return q.Claim == Held || q.Mine
	}
	if q.Claim != Held || !q.Mine {
		return false
	}
	q.Use = Listed
	return true
}

// opens reports whether a partition that is held is opened now.
func (s *State) opens(q *Part) bool { return q.Use == Listed || q.Use == Idle && !s.Kind.Eager }

// changed ends an eager session that has the partition: it was revoked or lost.
func (s *step) changed(q *Part, cause Cause) {
	if s.Kind.Eager && s.InSession() && q.Use != Idle {
		s.end(cause)
	}
}

// gained reports whether an eager session goes on without a claim that the member holds and keeps.
func (s *State) gained() bool { return s.Kind.Eager && s.InSession() && s.gains > 0 }

// overdue reports whether a partition is this member's by the plan whose ConsumeClaim has not returned in its time. It stays
// without an owner until that has returned.
func (s *State) overdue() bool { return !s.Kind.Eager && s.Planned && s.back > 0 }

// moves reports whether the member gives a partition up. In an incremental session all do when it leaves, revoked already or not.
func (s *State) moves(q *Part) bool { return q.Claim == Revoked || s.Leaving && !s.Kind.Eager }

// early reports whether a partition that moves is committed and released before Cleanup has returned.
func (s *State) early() bool {
	switch {
	case s.Setting:
		return false
	case s.Kind.Eager, s.Kind.Hold && s.Leaving:
		return s.Half
	default:
		return true
	}
}
