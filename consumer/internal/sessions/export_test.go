package sessions

import "slices"

// Of returns the state of a member with these partitions.
func Of(head Head, parts []Part) State { return State{Head: head, Parts: parts, counts: count(parts)} }

// Counted reports whether the counts are those of the partitions.
func (s *State) Counted() bool { return s.counts == count(s.Parts) }

// StepAll is Step, but looks at all partitions each time.
func (s *State) StepAll(in Input) []Action {
	st := step{State: s}
	st.grow(in.P)
	st.apply(in)
	for st.again = true; st.again; {
		st.again = false
		for p := range s.Parts {
			st.advancePart(p)
		}
		s.counts = count(s.Parts)
		st.advance()
	}
	if s.Gained && !s.gained() {
		s.Gained = false
	}
	return st.do
}

// Equal reports whether two states are the same.
func (s *State) Equal(o *State) bool {
	return s.Head == o.Head && s.counts == o.counts && slices.Equal(s.Parts, o.Parts)
}

// EqualActions reports whether the same is to be done.
func EqualActions(a, b []Action) bool {
	return slices.EqualFunc(a, b, func(a, b Action) bool {
		return a.Do == b.Do && a.P == b.P && a.Cause == b.Cause && slices.Equal(a.Claims, b.Claims)
	})
}
