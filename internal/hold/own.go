package hold

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
)

// The pause between two tries to remove a znode grows while the removal fails, such as after a change of the directory's ACL.
const (
	minPause = 100 * time.Millisecond
	maxPause = time.Second
)

// ErrUnsure says that a znode may have been created, or may yet be, and that the servers did not show whether it exists.
var ErrUnsure = errors.New("unknown whether the znode was created")

var errMayExist = errors.New("may still exist")

// Own is a znode that this process creates, or finds created, and removes.
type Own struct {
	*Removal

	name    string // path of the znode, for the log and errors
	log     *slog.Logger
	lasting *session.Session // kept open while a persistent znode is created or removed; nil if the znode is ephemeral
	remove  func(life context.Context) error
}

// NewOwn returns an Own whose znode is yet to be created. Remove tries once to delete the znode and returns nil or
// [session.ErrNoNode] if the znode is proved gone. After other errors remove is called again, until the session is over. If
// lasting is not nil, the znode is persistent, and remove is called until Run of lasting has ended.
func NewOwn(name string, log *slog.Logger, lasting *session.Session, remove func(life context.Context) error) *Own {
	return &Own{name: name, log: log, lasting: lasting, remove: remove, Removal: NewRemoval()}
}

// Make calls f, which creates the znode. The context of f does not end with ctx, because a request that was given up may still be
// carried out. When ctx ends, f goes on in the background, and the znode that f creates is removed there. F returns nil if the
// znode exists, an error that wraps [ErrUnsure] if it may exist, and any other error if it does not. After an error of Make, Gone
// is closed as soon as the znode is gone.
func (o *Own) Make(ctx context.Context, f func(life context.Context) error) error {
	results := make(chan error)
	letGo := keep(o.lasting)
	go func() {
		defer letGo()
		life := context.WithoutCancel(ctx)
		err := f(life)
		select {
		case results <- err:
			if err == nil {
				return // the caller has the znode
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

// Name sets the path of a znode that the server has named. Only the function that [Own.Make] runs may call it.
func (o *Own) Name(path string) { o.name = path }

// Abandon starts to delete the znode in the background, even if ctx has ended. Before the deletion it calls the given functions,
// in the background as well. It does not block, and reports whether it was the first call that started the deletion.
func (o *Own) Abandon(ctx context.Context, before ...func(life context.Context)) (first bool) {
	return o.Start(ctx, o.lasting, func(life context.Context) error {
		for _, f := range before {
			f(life)
		}
		return o.removeAll(life)
	})
}

// removeAll calls remove until the znode is gone or its session is over. It returns an error if the znode is persistent and Run
// has ended.
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
			return operr.New("", "", o.name, operr.Because(errMayExist, err))
		}
		o.log.WarnContext(life, "znode not removed yet", "path", o.name, "error", err)
		_ = backoff.Wait(life) // life does not end
	}
}

// Delete deletes a znode whose name nobody else uses. When the outcome is unknown, Delete calls exists, which checks after a Sync
// whether the znode still exists. All earlier requests have returned then, so a znode that is gone does not appear later.
func Delete(life context.Context, inc *session.Incarnation, path string, exists func(life context.Context) (bool, error)) error {
	for {
		err := inc.Delete(life, path, -1)
		if !errors.Is(err, session.ErrUncertain) {
			return err
		}
		if again, err := exists(life); err != nil || !again {
			return err
		}
	}
}

// Over reports whether err says that the session of an incarnation has ended, and its ephemeral znodes with it. After the end of
// Run the znodes may exist for one more session timeout.
func Over(err error) bool { return errors.Is(err, session.ErrSessionExpired) || Closed(err) }

// Refused reports whether err is an answer with which the servers refuse a request, by an ACL or a quota for instance, or says
// that they end the connection for it. They may do so no more once an operator has put that right.
func Refused(err error) bool {
	for _, refusal := range []error{
		session.ErrNoAuth, session.ErrInvalidACL, session.ErrQuotaExceeded, session.ErrAnswerTooLarge, session.ErrServer,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return session.Classify(err) == session.ClassBackoff
}

// Closed reports whether err says that there will be no incarnation any more.
func Closed(err error) bool {
	return errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrAuthFailed)
}
