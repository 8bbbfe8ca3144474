package page

import (
	"cmp"
	"errors"
	"time"

	"github.com/kielgo/kiel/status"
)

// Self is the member in this process: *consumer.Group is one. Status is called once per refresh while somebody watches, from
// Run's goroutine.
type Self interface {
	Status() *status.Group
}

// Options are what New may be told. The zero value works.
type Options struct {
	// Self is the member in this process; nil if it is none. What it says of its own handlers is shown without asking anybody.
	Self Self
	// Refresh is the time from one look at the group to the next, while somebody watches. Default: 2 s.
	Refresh time.Duration
	// Window is how old a look is with which a later one is compared, to tell what stands still from what is slow. Default: 10 s.
	Window time.Duration
	// MaxViewers is how many are served what is new as it comes. Default: 100.
	MaxViewers int
}

const (
	defaultRefresh = 2 * time.Second
	defaultWindow  = 10 * time.Second
	defaultViewers = 100
	defaultWait    = 2 * time.Second // for a source's answer
	maxClaims      = 10_000          // partitions of a group above which claims are not read, as the command kiel has it
)

var errNegative = errors.New("options Refresh, Window and MaxViewers must not be negative")

func (o Options) complete() (Options, error) {
	if o.Refresh < 0 || o.Window < 0 || o.MaxViewers < 0 {
		return o, errNegative
	}
	o.Refresh = cmp.Or(o.Refresh, defaultRefresh)
	o.Window = cmp.Or(o.Window, defaultWindow)
	o.MaxViewers = cmp.Or(o.MaxViewers, defaultViewers)
	return o, nil
}
