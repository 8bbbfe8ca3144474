package sessions

// Of returns the state of a member with these partitions.
func Of(head Head, parts []Part) State { return State{Head: head, Parts: parts, counts: count(parts)} }

// Counted returns whether the counts are those of the partitions.
func (s *State) Counted() bool { return s.counts == count(s.Parts) }
