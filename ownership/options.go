package ownership

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/operr"
)

const (
	defaultRebalanceTimeout = time.Minute
	defaultStopTimeout      = 30 * time.Second
)

// Options configure an [Owner]. The zero value works. The functions may panic: the log has the stack of the first, then a line in
// 10 s with a count, and OnError receives each panic but its own, as an [ErrCallback]. A call that takes longer than
// RebalanceTimeout, or 5 s if that is longer, is reported as [ErrStuck]. If it is one of Observer or Accept, without which
// nothing can be handed over, Run leaves the group and returns that.
type Options struct {
	// RebalanceTimeout is how long a handler may go on after its context ended. Then its claim is lost, and released all the
	// same. 0 means 60 s.
	RebalanceTimeout time.Duration
	// StopTimeout is how long leaving may take: from the end of Run's context, or Stop, until Run returns. Handlers get what is
	// left of it, less a reserve for the releases (a fifth, at most 5 s). 0 means 30 s.
	StopTimeout time.Duration
	// Accept returns an error for a partition that was allocated to this member and that it can't consume. The partition is not
	// claimed then, and the error goes to OnError once, until the partition was accepted or allocated to another member. It is
	// called for each allocated partition at each snapshot, on the one goroutine that handles snapshots: it must not block. A
	// partition for which it panics is not claimed. Nil accepts all.
	Accept func(kiel.Partition) error
	// Observer is called with each event, one call at a time, in order, on a goroutine of its own. A claim is not opened and not
	// released before the call about it has returned, so it must not block for long. At most a few events for each partition wait
	// behind a slow call. Waiting events about no partition, with no other between them, are merged: the newest Snapshot or
	// Joined, the first Untrusted. A panic ends the call and nothing else. Nil is no observer. See [Event].
	Observer func(Event)
	// OnError is called with each error that does not end Run, one call at a time, on a goroutine of its own. An error of one
	// partition is a [*PartitionError] or a [*StuckError]. It must not wait for the end of Run. At most 64 errors wait behind a
	// slow call: older ones are dropped, and kiel_errors_dropped_total counts them. Nil drops all; they are logged anyway.
	OnError func(error)
	// Logger receives the log. With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger with
	// slog.DiscardHandler drops all.
	Logger *slog.Logger
	// Registerer registers the metrics, with the label group, while Run runs. It may be the allocator's. Nil means they are not
	// registered. Run fails while another Owner of the group has the same.
	Registerer prometheus.Registerer
}

// withDefaults returns a checked copy of o in which nothing is left open.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.RebalanceTimeout < 0 {
		errs = append(errs, operr.New("", "option RebalanceTimeout", "", fmt.Errorf("%v is negative", o.RebalanceTimeout)))
	}
	if o.StopTimeout < 0 {
		errs = append(errs, operr.New("", "option StopTimeout", "", fmt.Errorf("%v is negative", o.StopTimeout)))
	}
	if len(errs) > 0 {
		return o, operr.New(pkg, "", "", errors.Join(errs...))
	}
	o.RebalanceTimeout = cmp.Or(o.RebalanceTimeout, defaultRebalanceTimeout)
	o.StopTimeout = cmp.Or(o.StopTimeout, defaultStopTimeout)
	o.Logger = defaultlog.Or(o.Logger)
	return o, nil
}
