package sharedset

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/operr"
)

// Options of a [Set]. The zero value works.
type Options struct {
	// LockTimeout is how long Add and Remove wait for the lock. Default: 30 s.
	LockTimeout time.Duration

	// Identifier is the data of this handle's contenders for the lock; other processes see it as the name of the holder. Default:
	// empty, as Python kiel's.
	Identifier string

	// Logger gets unreadable data and errors that can't be returned.
	// With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger

	// Registerer gets the metric kiel_sharedset_updates_total. Sets with the same Registerer share it. With nil it is not
	// registered.
	Registerer prometheus.Registerer
}

// withDefaults returns the options with defaults for zero values, or an error.
func (o Options) withDefaults() (Options, error) {
	if o.LockTimeout < 0 {
		return o, operr.New("sharedset", "", "", fmt.Errorf("option LockTimeout: %v is less than 0", o.LockTimeout))
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, 30*time.Second)
	o.Logger = defaultlog.Or(o.Logger)
	return o, nil
}
