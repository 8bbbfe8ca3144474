package consumer

import (
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
)

// Ownership, the consumer and the event log have one word for one event. Only the consumer knows of messages and offsets.
func TestOneWordForOneEvent(t *testing.T) {
	ours := []EventKind{Joined, Snapshot, Claimed, Opened, Message, Revoking, Committed, Released, Lost, Untrusted, Left}
	log := []string{
		eventlog.Joined, eventlog.Snapshot, eventlog.Claimed, eventlog.Opened, eventlog.Message, eventlog.Revoking,
		eventlog.Committed, eventlog.Released, eventlog.Lost, eventlog.Untrusted, eventlog.Left,
	}
	var owned []EventKind
	for kind := ownership.Joined; !strings.HasPrefix(kind.String(), "event("); kind++ {
		owned = append(owned, EventKind(kind.String()))
	}
	for i, kind := range ours {
		if string(kind) != log[i] {
			t.Errorf("%q is %q in the event log", kind, log[i])
		}
	}
	rest := slices.DeleteFunc(slices.Clone(ours), func(kind EventKind) bool { return slices.Contains([]EventKind{Opened, Message, Committed}, kind) })
	if !slices.Equal(owned, rest) {
		t.Errorf("ownership's events are %q, ours are %q", owned, rest)
	}
}
