package allocfn

// Repaired reports whether the last result was repaired from the one before.
func (e *Evaluator) Repaired() bool { return e.plan.circle.points != nil }

// AssignWithin is Assign, but gives up a repair after so many events.
func (e *Evaluator) AssignWithin(in Input, events int) (Assignment, error) {
	first, last := e.plan.agree(in.Members)
	if a := e.repair(in, first, last, events); a != nil {
		return a, nil
	}
	return e.begin(in)
}
