package sharedset

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/defaultlog"
)

// Options of a [Set]. The zero value works.
type Options struct {
	// LockTimeout is how long Add and Remove wait for the lock. Default: 30 s.
	LockTimeout time.Duration

	// Identifier is the data of our contenders for the lock: who we are, for those who
	// are blocked by us. Default: empty, as kiel's.
	Identifier string

	// Logger is told of unreadable data and of what can't be returned as an error.
	// With nil, warnings and errors go to slog.Default(); a Logger with
	// slog.DiscardHandler drops all.
	Logger *slog.Logger

	// Registerer registers kiel_sharedset_updates_total. Sets with the same Registerer
	// share it. Default: not registered.
	Registerer prometheus.Registerer
}

// withDefaults returns the options with zero values replaced, or what is wrong.
func (o Options) withDefaults() (Options, error) {
	if o.LockTimeout < 0 {
		return o, errors.New("sharedset: LockTimeout is negative: " + fmt.Sprint(o.LockTimeout))
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, 30*time.Second)
	o.Logger = defaultlog.Or(o.Logger)
	return o, nil
}
