package scenarios

// Row is one of the page of package consumer, about a difference.
type Row struct {
	// Title is what the row begins with on the page.
	Title string
	// Findings are the places where the difference is found. The first row that matches a finding has it.
	Findings []Place
	// Reason says why there is no scenario, when there are no findings.
	Reason string
}

// Place is a lane of a case; "*" is any.
type Place struct{ Case, Lane string }

func (p Place) matches(f Finding) bool {
	return (p.Case == "*" || p.Case == f.Case) && (p.Lane == "*" || p.Lane == f.Lane)
}

// Rows returns the rows of the page, in its order.
func Rows() []Row {
	return []Row{
		{Title: "Panics", Findings: []Place{
			{"ConsumeClaim panics", "*"},
			{"Setup panics", "*"},
			{"Cleanup panics", "*"},
			{"ConsumeClaim calls Goexit", "Errors"},
		}},
		{Title: "Handlers that do not return", Findings: []Place{
			{"ConsumeClaim ignores the end", "*"},
			{"Setup does not return", "*"},
			{"Cleanup does not return", "*"},
		}},
		{Title: "Partitions that are not given back in time", Findings: []Place{
			{"a handler does not return when its partition is revoked", "*"},
		}},
		{Title: "The session of ConsumeClaim", Findings: []Place{
			{"a second member joins and leaves", "the two ConsumeClaims after the join"},
			{"ConsumeClaim ends with the context alone", "after the join"},
		}},
		{Title: "Rebalances", Findings: []Place{
			{"a second member joins and leaves", "*"},
			{"partitions are added", "first session"},
			{"partitions are added, Offsets.Initial is newest", "first session"},
		}},
		{Title: "Strategies", Reason: "which member gets which partition is nothing that a handler relies on here: the scenarios compare the partitions of all members together; package consumer's own tests have strategies"},
		{Title: "Claims in Setup", Findings: []Place{
			{"a handler is slow while a second member joins", "claims of the second in Setup"},
			{"Setup makes the state of Claims", "ConsumeClaim"},
			{"Setup makes the state of Claims", "after the join"},
		}},
		{Title: "Sessions that fail quickly", Findings: []Place{
			{"ConsumeClaim fails at once, five times", "five sessions"},
		}},
		{Title: "The error of the context", Findings: []Place{
			{"ConsumeClaim returns the error of the context", "Errors"},
			{"Cleanup returns the error of the context", "Errors"},
		}},
		{Title: "The last commit", Findings: []Place{
			{"ConsumeClaim is slow to return", "stored in Cleanup"},
			{"ConsumeClaim is slow to return", "stored while the other ConsumeClaim runs"},
			{"marks in Cleanup", "stored"},
			{"Cleanup marks while a second member joins", "after the leave"},
			{"a worker marks until Cleanup", "stored"},
		}},
		{Title: "Start positions", Findings: []Place{
			{"nothing is marked", "stored without a mark"},
			{"the context of Consume is canceled", "InitialOffset 0"},
			{"the context of Consume is canceled", "InitialOffset 1"},
			{"Consume again", "InitialOffset 0"},
			{"Consume again", "InitialOffset 1"},
			{"resets to OffsetOldest in Setup", "stored"},
			{"marks in Setup, autocommit is off", "stored"},
			{"marks and Commit in Setup, autocommit is off", "stored in Setup"},
		}},
		{Title: "Metadata", Findings: []Place{
			{"metadata of a mark", "metadata"},
			{"metadata that is too large", "stored"},
		}},
		{Title: "A second Consume", Findings: []Place{
			{"Consume twice at the same time", "*"},
		}},
		{Title: "A Setup that fails", Reason: "it is about the time until a member leaves, which is as long as a session timeout; package consumer's own tests have it in virtual time"},
		{Title: "Where to start", Findings: []Place{
			{"partitions are added, Offsets.Initial is newest", "message in the new partition"},
		}},
		{Title: "Positions that Kafka does not have", Findings: []Place{
			{"the offset in Kafka is before the first message", "Errors"},
			{"the offset in Kafka is behind the last message", "*"},
			{"the offset in Kafka is out of range and must not be reset", "*"},
		}},
		{Title: "Deleted topics", Findings: []Place{
			{"the topic is deleted", "*"},
		}},
		{Title: "Lost memberships", Findings: []Place{
			{"the membership is lost", "*"},
		}},
		{Title: "Kafka out of reach", Findings: []Place{
			{"Kafka goes away for a while", "*"},
		}},
		{Title: "Errors that nobody reads", Findings: []Place{
			{"more errors than the channel holds", "Errors"},
			{"errors that nobody reads", "*"},
		}},
		{Title: "Wrapped errors", Findings: []Place{
			{"metadata that is too large", "Errors"},
		}},
		{Title: "Identity", Findings: []Place{
			{"*", "MemberID"},
			{"*", "GenerationID"},
		}},
		{Title: "Interceptors", Findings: []Place{
			{"interceptors", "seen while the handler has one message and the channel two"},
		}},
		{Title: "Messages left in the channel", Findings: []Place{
			{"messages are left in the channel at the end", "Messages"},
		}},
	}
}
