package ownership

import (
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// named is a source of which a loop asks the name alone.
type named struct {
	source
	name string
}

func (n named) Member() string { return n.name }

// The owner before that the loop saw itself comes before the one that the plan names.
func TestOrigin(t *testing.T) {
	id := kiel.Partition{Topic: "t", ID: 0}
	gone := &allocator.Move{From: "x", Reason: statuswrite.Reason(status.MemberGone, "x")}
	start := &allocator.Move{From: "x", Reason: statuswrite.Reason(status.Started)}
	grew := &allocator.Move{From: "x", Reason: statuswrite.Reason(status.TopicGrew, "t")}
	for name, c := range map[string]struct {
		again            status.Code
		holder           string
		move             *allocator.Move
		members          []string
		previous, reason string
	}{
		"again":                                 {again: status.SessionLost, move: gone, previous: "self", reason: "session-lost"},
		"again, another had it meanwhile":       {again: status.Stuck, holder: "y", move: gone, previous: "y", reason: "stuck"},
		"no move":                               {reason: "unknown"},
		"no move, but a holder":                 {holder: "y", previous: "y", reason: "unknown"},
		"gone":                                  {move: gone, previous: "x", reason: "member-gone x"},
		"gone, its claim stood":                 {move: gone, holder: "x", previous: "x", reason: "member-left x"},
		"gone, its claim stood, and it is back": {move: gone, holder: "x", members: []string{"x"}, previous: "x", reason: "member-gone x"},
		"gone, another's claim stood":           {move: gone, holder: "y", previous: "y", reason: "member-gone x"},
		"grew, its claim stood":                 {move: grew, holder: "x", previous: "x", reason: "topic-grew t"},
		"started":                               {move: start, previous: "x", reason: "started"},
		"started, another had it":               {move: start, holder: "y", previous: "y", reason: "member-joined self"},
		"started, our old session had it":       {move: start, holder: "self", previous: "self", reason: "started"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &loop{o: &Owner{source: named{name: "self"}}, plans: plans{plan: &plan{
				move: func(kiel.Partition) (m allocator.Move, ok bool) {
					if c.move != nil {
						m = *c.move
					}
					return m, c.move != nil
				},
				member: func(name string) bool { return len(c.members) > 0 && c.members[0] == name },
			}}}
			got := l.origin(&part{id: id, notes: notes{again: c.again, obstacle: obstacle{owner: c.holder}}})
			if got.previous != c.previous || got.reason.String() != c.reason {
				t.Errorf("%q, %q; want %q, %q", got.previous, got.reason, c.previous, c.reason)
			}
		})
	}
}

// The reason for which a partition goes is its own move's, if it has one, and where it goes is told also when the member stops.
func TestDestination(t *testing.T) {
	id := kiel.Partition{Topic: "t", ID: 0}
	joined := &allocator.Move{From: "self", Reason: statuswrite.Reason(status.MemberJoined, "x")}
	for name, c := range map[string]struct {
		phase        phase
		owner        string
		move         *allocator.Move
		next, reason string
	}{
		"to another":               {phase: working, owner: "x", move: joined, next: "x", reason: "member-joined x"},
		"to nobody":                {phase: working, reason: "topic-removed t"},
		"it stops":                 {phase: draining, owner: "self", reason: "stopped"},
		"it stops, another has it": {phase: draining, owner: "x", move: joined, next: "x", reason: "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &loop{o: &Owner{source: named{name: "self"}}, departure: departure{phase: c.phase}, plans: plans{plan: &plan{
				reason: statuswrite.Reason(status.TopicRemoved, "t"),
				owner:  func(kiel.Partition) (string, bool) { return c.owner, c.owner != "" },
				move: func(kiel.Partition) (m allocator.Move, ok bool) {
					if c.move != nil {
						m = *c.move
					}
					return m, c.move != nil
				},
			}}}
			if next, reason := l.destination(&part{id: id}); next != c.next || reason.String() != c.reason {
				t.Errorf("%q, %q; want %q, %q", next, reason, c.next, c.reason)
			}
		})
	}
}
