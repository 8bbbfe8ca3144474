package scenarios

import "slices"

// Pending returns the lanes in which ours eager is to be as sarama eager, and is not yet. A test fails when one of them is, until
// it is taken out.
func Pending() []Place {
	return []Place{
		{"a second member joins and leaves", "first session after the join"},
		{"a second member joins and leaves", "the two ConsumeClaims after the join"},
		{"a second member joins and leaves", "the first member after the join"},
		{"a second member joins and leaves", "the first member after the leave"},
		{"a handler does not return when its partition is revoked", "the first session"},
		{"partitions are added", "Setup"},
		{"partitions are added, Offsets.Initial is newest", "Setup"},
		{"the membership is lost", "session"},
		{"the membership is lost", "Consume"},
		{"the membership is lost", "ConsumeClaim"},
		{"ConsumeClaim ends with the context of Setup alone", "after the join"},
		{"Setup makes the state of Claims", "after the leave"},
		{"Setup runs while a second member joins", "context in Setup"},
		{"Setup runs while a second member joins", "ConsumeClaim"},
		{"Cleanup marks while a second member joins", "after the join"},
		{"Cleanup marks while a second member joins", "after the leave"},
		{"marks in Cleanup", "stored"},
		{"a worker marks until Cleanup", "stored"},
		{"marks and Commit in Setup, autocommit is off", "stored in Setup"},
	}
}

// isPending returns whether ours eager is to become as sarama's in the lane of a finding.
func isPending(f Finding) bool {
	return f.differs(OursEager) && slices.ContainsFunc(Pending(), func(p Place) bool { return p.matches(f) })
}
