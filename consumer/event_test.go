package consumer

import (
	"testing"

	"github.com/kielgo/kiel/internal/eventlog"
)

// Ownership, the consumer and the event log have one word for one event.
func TestOneWordForOneEvent(t *testing.T) {
	ours := []EventKind{Joined, Snapshot, Claimed, Opened, Message, Revoking, Committed, Releasing, Lost, Untrusted, Left}
	log := []string{
		eventlog.Joined, eventlog.Snapshot, eventlog.Claimed, eventlog.Opened, eventlog.Message, eventlog.Revoking,
		eventlog.Committed, eventlog.Releasing, eventlog.Lost, eventlog.Untrusted, eventlog.Left,
	}
	for i, kind := range ours {
		if string(kind) != log[i] {
			t.Errorf("%q is %q in the event log", kind, log[i])
		}
	}
}
