package consumer

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/ownership"
)

// A text names operation and object once, and the error is all that it wraps.
func TestErrorTexts(t *testing.T) {
	p := kiel.Partition{Topic: "orders", ID: 3}
	beyond := &fetch.RangeError{Topic: "orders", Partition: 3, Position: 17, Start: 12, End: 40}
	cut := &fetch.TruncatedError{Topic: "orders", Partition: 3, Position: 17, Diverges: 15, Epoch: 4, Found: 5}
	lost := operr.New("consumer", "commit", p.String(), offsets.ErrLost)
	for want, c := range map[string]struct {
		err error
		is  []error
	}{
		"consumer: read orders:3 at 17: the log has 12 to 40, continuing at 12": {
			outOfLog(p, 17, beyond, ", continuing at %d", 12), []error{ErrOffsetReset, sarama.ErrOffsetOutOfRange},
		},
		"consumer: read orders:3 at 17: the log was truncated, epoch 5, was 4, differs from offset 15": {
			outOfLog(p, 17, cut, ""), []error{ErrOffsetReset, fetch.ErrTruncated},
		},
		"consumer: read orders:3 at 17: gone":                                {outOfLog(p, 17, errors.New("gone"), ""), []error{ErrOffsetReset}},
		"consumer: commit the start position of orders:3: the claim is lost": {notCommitted(p, lost), []error{offsets.ErrLost}},
		"consumer: topic orders was deleted and created again":               {offsets.Recreated("orders"), []error{ErrRecreated}},
		"consumer: Setup did not return in time":                             {stuck("%s did not return in time", "Setup"), []error{ownership.ErrStuck}},
		"consumer: the claim is not trusted any more":                        {errUntrusted, []error{ownership.ErrLost}},
	} {
		assert.Equal(t, c.err.Error(), want, "got")
		for _, is := range c.is {
			assert.Error(t, c.err, is, "%q", want)
		}
	}
}

// Ownership, the consumer and the event log have one word for one event.
func TestOneWordForOneEvent(t *testing.T) {
	ours := []EventKind{Joined, Snapshot, Claimed, Opened, Message, Revoking, Committed, Releasing, Lost, Untrusted, Left}
	log := []string{
		eventlog.Joined, eventlog.Snapshot, eventlog.Claimed, eventlog.Opened, eventlog.Message, eventlog.Revoking,
		eventlog.Committed, eventlog.Releasing, eventlog.Lost, eventlog.Untrusted, eventlog.Left,
	}
	for i, kind := range ours {
		assert.Equal(t, string(kind), log[i], "%q in the event log", kind)
	}
}
