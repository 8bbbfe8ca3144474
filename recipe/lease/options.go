package lease

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/defaultlog"
)

// defaultSkew is how far clocks may be apart when nothing else is said.
const defaultSkew = 2 * time.Second

// Options of a lease. Identifier and Duration must be given.
type Options struct {
	// Identifier is who we are: whoever has the same may renew the lease. It is not empty
	// and UTF-8. It has no default: kazoo's, the host name, makes one holder of all
	// processes of a host.
	Identifier string

	// Duration is for how long a lease is obtained, and renewed. It must be at least the
	// Skew and two seconds, because the written end has full seconds.
	Duration time.Duration

	// Skew is the largest difference between the clocks of any two that use the lease.
	// A hold ends by so much before the lease. Default: 2 s.
	Skew time.Duration

	// Now tells the time. It may be called from any goroutine. Default: time.Now, and only
	// that is compared with the clock of the servers.
	Now func() time.Time

	// Logger is told what can't be returned as an error, and, as "still waiting", who has the inner lock
	// when a call waits for that for long: after about half a minute, and then whenever the time has
	// doubled.
	// With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Skew = cmp.Or(o.Skew, defaultSkew)
	o.Logger = defaultlog.Or(o.Logger)
	return o
}

func (o Options) validate() error {
	var errs []error
	if o.Identifier == "" || !utf8.ValidString(o.Identifier) {
		errs = append(errs, fmt.Errorf("option Identifier: %q is empty or not valid UTF-8", o.Identifier))
	}
	if o.Skew < 0 {
		errs = append(errs, fmt.Errorf("option Skew: %v is negative", o.Skew))
	}
	if least := o.Skew + 2*time.Second; o.Duration < least {
		errs = append(errs, fmt.Errorf("option Duration: %v, want at least %v, the Skew and 2s", o.Duration, least))
	}
	return errors.Join(errs...)
}
