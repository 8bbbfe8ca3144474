package hold

import (
	"context"
	"sync"

	"github.com/kielgo/kiel/session"
)

// Removal removes something of this process's once, in the background. Any number of calls may wait for that.
type Removal struct {
	once  sync.Once
	gone  chan struct{}
	stays error // why it may exist for ever; set before gone is closed
}

// NewRemoval returns a Removal that has not started.
func NewRemoval() *Removal { return &Removal{gone: make(chan struct{})} }

// Start calls remove in the background, with a context that has ctx's values and does not end with ctx. It keeps the session open
// until remove returns, unless the session is nil. It does not block, and reports whether it was the first call.
func (r *Removal) Start(ctx context.Context, lasting *session.Session, remove func(life context.Context) error) (first bool) {
	r.once.Do(func() {
		first = true
		letGo := keep(lasting)
		go func() {
			defer close(r.gone)
			defer letGo()
			r.stays = remove(context.WithoutCancel(ctx))
		}()
	})
	return first
}

// keep keeps the session open, if it is not nil.
func keep(lasting *session.Session) (letGo func()) {
	if lasting == nil {
		return func() {}
	}
	return lasting.KeepOpen()
}

// Vanished records that the znode is gone or its session is over, unless its removal has started. The znode's name may be used
// again from now on, so it is not deleted any more.
func (r *Removal) Vanished() { r.once.Do(func() { close(r.gone) }) }

// Gone returns a channel that is closed when the znode is proved gone, or can't be removed any more.
func (r *Removal) Gone() <-chan struct{} { return r.gone }

// Wait waits until Gone is closed. If ctx ends first, Wait returns its cause. Any other error says that the znode may exist for
// ever.
func (r *Removal) Wait(ctx context.Context) error {
	select {
	case <-r.gone:
		return r.stays
	case <-ctx.Done():
	}
	select {
	case <-r.gone: // closed in the same moment
		return r.stays
	default:
		return context.Cause(ctx)
	}
}
