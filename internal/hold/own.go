package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
)

// The pause between two tries to remove a znode that can't be removed, such as one in a directory whose ACL was changed.
const (
	minPause = 100 * time.Millisecond
	maxPause = time.Second
)

// ErrUnsure says that a znode may have been made, or may yet be, and that it can't be seen whether it stands.
var ErrUnsure = errors.New("not known whether the znode was made")

// Own is a znode of this process: one that it makes, or finds made, and removes.
type Own struct {
	name    string // path of the znode, for the log and errors
	log     *slog.Logger
	lasting *session.Session // the znode is persistent, and this is kept open while it is made or removed; nil: it is ephemeral
	remove  func(life context.Context) error

	once  sync.Once
	gone  chan struct{}
	stays error // set before gone is closed
}

// NewOwn returns a znode that is to be made. Remove is one try to delete it, which returns nil, or [session.ErrNoNode], when it is
// proved gone; it is called again after other errors, until the session is over. If lasting is not nil the znode is
// persistent, and it is called until that session's Run has ended.
func NewOwn(name string, log *slog.Logger, lasting *session.Session, remove func(life context.Context) error) *Own {
	return &Own{name: name, log: log, lasting: lasting, remove: remove, gone: make(chan struct{})}
}

// keep keeps Run from ending, for as long as it waits for anybody, while a persistent znode is made or removed. One that is
// ephemeral goes with the session.
func (o *Own) keep() (letGo func()) {
	if o.lasting == nil {
		return func() {}
	}
	return o.lasting.Hold()
}

// Make calls f, which makes the znode, with a context that does not end with ctx, because a request that was given up may still be
// carried out: it goes on in the background then, and what it has made is removed there. F returns nil when the znode stands, an
// error that wraps [ErrUnsure] when it may, and any other when it does not. After an error Gone is closed some time.
func (o *Own) Make(ctx context.Context, f func(life context.Context) error) error {
	results := make(chan error)
	letGo := o.keep()
	go func() {
		defer letGo()
		life := context.WithoutCancel(ctx)
		err := f(life)
		select {
		case results <- err:
			if err == nil {
				return // the caller has it
			}
		case <-ctx.Done():
		}
		if err == nil || errors.Is(err, ErrUnsure) {
			o.stays = o.removeAll(life)
		}
		o.Vanished()
	}()
	select {
	case err := <-results:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Name says what the path of the znode is, if the server has named it. F, see [Own.Make], is to call it.
func (o *Own) Name(path string) { o.name = path }

// Abandon begins to delete the znode in the background, also after ctx has ended. It does not block, and reports whether it
// was the first to begin. Before that the functions are called, in the background.
func (o *Own) Abandon(ctx context.Context, before ...func(life context.Context)) (first bool) {
	o.once.Do(func() {
		first = true
		letGo := o.keep()
		go func() {
			defer close(o.gone)
			defer letGo()
			life := context.WithoutCancel(ctx)
			for _, f := range before {
				f(life)
			}
			o.stays = o.removeAll(life)
		}()
	})
	return first
}

// Vanished says that the znode was seen to be gone, or that its session is over. Its name may be used again from now on: it
// must not be deleted any more.
func (o *Own) Vanished() { o.once.Do(func() { close(o.gone) }) }

// Gone is closed when it is proved that the znode does not exist, or that it can't be removed any more.
func (o *Own) Gone() <-chan struct{} { return o.gone }

// Wait waits until Gone is closed, or ctx ends, and then returns its cause. An error says that the znode may stand for ever.
func (o *Own) Wait(ctx context.Context) error {
	select {
	case <-o.gone:
		return o.stays
	case <-ctx.Done():
	}
	select {
	case <-o.gone: // known, though late
		return o.stays
	default:
		return context.Cause(ctx)
	}
}

// removeAll deletes the znode until it is gone or its session is over. If it is persistent and Run has ended, it returns
// an error.
func (o *Own) removeAll(life context.Context) error {
	backoff := pause.Backoff{Growth: pause.Doubling(minPause, maxPause)}
	for {
		err := o.remove(life)
		switch {
		case err == nil, errors.Is(err, session.ErrNoNode):
			return nil
		case o.lasting == nil && Over(err):
			return nil
		case Closed(err):
			return fmt.Errorf("%s may stand: %w", o.name, err)
		}
		o.log.WarnContext(life, "znode not removed yet", "path", o.name, "error", err)
		_ = backoff.Wait(life) // life does not end
	}
}

// Delete is a try to remove a znode whose name nobody else uses: it is deleted at once, and looked at if the outcome is not
// known. Stands asks whether it still stands, after a Sync: the requests before have returned then, and what is not seen now
// does not appear later.
func Delete(life context.Context, inc *session.Incarnation, path string, stands func(life context.Context) (bool, error)) error {
	for {
		err := inc.Delete(life, path, -1)
		if !errors.Is(err, session.ErrUncertain) {
			return err
		}
		if again, err := stands(life); err != nil || !again {
			return err
		}
	}
}

// Over reports whether err says that the session of an incarnation has ended, and its ephemeral znodes with it. If Run
// has ended they may stand for a session timeout.
func Over(err error) bool { return errors.Is(err, session.ErrSessionExpired) || Closed(err) }

// Closed reports whether err says that there will be no incarnation any more.
func Closed(err error) bool {
	return errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrAuthFailed)
}
