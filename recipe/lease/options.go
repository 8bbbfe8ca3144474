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

// defaultSkew is the default of Options.Skew.
const defaultSkew = 2 * time.Second

// Options of a lease. Identifier and Duration must be given.
type Options struct {
	// Identifier names the holder: any process with the same identifier may renew the lease. It must be UTF-8 and not empty. It
	// has no default, because kazoo's default, the host name, makes one holder of all processes of a host.
	Identifier string

	// Duration is the time for which a lease is obtained, and renewed. It must be at least the Skew and two seconds, because the
	// written end has full seconds.
	Duration time.Duration

	// Skew is the largest difference between the clocks of any two processes that use the lease. A hold ends that long before its
	// lease. Default: 2 s.
	Skew time.Duration

	// Now returns the time. Any goroutine may call it. Default: time.Now, the only clock that is compared with the servers'
	// clock.
	Now func() time.Time

	// Logger gets what can't be returned as an error. While a call waits for the inner lock for long, it also gets the holder of
	// that lock, as "still waiting": after about half a minute, and then whenever the time has doubled. With nil, warnings and
	// errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
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
		errs = append(errs, fmt.Errorf("option Skew: %v is less than 0", o.Skew))
	}
	if least := o.Skew + 2*time.Second; o.Duration < least {
		errs = append(errs, fmt.Errorf("option Duration: %v is less than %v, the Skew and 2s", o.Duration, least))
	}
	return errors.Join(errs...)
}
