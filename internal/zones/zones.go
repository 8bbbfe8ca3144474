package zones

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
)

// Zones is a handle on one znode.
type Zones struct {
	session *session.Session
	path    string
	parent  string
	reader  *watched.Reader[View]
}

// New returns a handle on the znode named name in the znode parent. It does no I/O.
func New(s *session.Session, parent, name string) (*Zones, error) {
	path := session.Join(parent, name)
	if s == nil {
		return nil, operr.New("zones", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("zones", "", "", err)
	}
	z := &Zones{session: s, path: path, parent: parent}
	z.reader = watched.New(watched.Options[View]{
		Session: s, Path: path, Package: "zones",
		Look: z.look, Refused: func(err error) *View { return &View{Err: err} }, Complete: z.complete, Newer: newer,
	})
	return z, nil
}

// Run watches the znode and publishes views until ctx ends; then it returns nil. It returns an error only when the session has
// ended for good. A second call returns [kiel.ErrRunTwice].
func (z *Zones) Run(ctx context.Context) error { return z.reader.Run(ctx) }

// Refresh makes Run read again, after a Sync, and waits until the view is published, or ctx ends.
func (z *Zones) Refresh(ctx context.Context) error { return z.reader.Refresh(ctx) }

// View returns the newest view, nil before the first.
func (z *Zones) View() *View { return z.reader.View() }

// Updates yields the newest view, and then each that differs in content or incarnation, until ctx ends.
func (z *Zones) Updates(ctx context.Context) iter.Seq[*View] { return z.reader.Updates(ctx) }

// Change returns new zones for the present ones, which it must neither keep nor change. A partition with the zone "" has none.
type Change func(now map[kiel.Partition]string) map[kiel.Partition]string

// Update writes what change returns for the present zones; it may call change more than once. Its errors wrap ErrUnreadable,
// ErrTooLarge, ErrInvalid, the cause of ctx's end or the session's errors; after session.ErrUncertain the zones may have been
// written.
func (z *Zones) Update(ctx context.Context, change Change) error {
	var unanswered error
	for {
		err := z.try(ctx, change)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return operr.New("zones", "write", z.path, errors.Join(context.Cause(ctx), err, unanswered))
		case errors.Is(err, session.ErrUncertain):
			unanswered = session.ErrUncertain // it may still be done, but not after another write; the next read shows it
		case errors.Is(err, session.ErrBadVersion), errors.Is(err, session.ErrNodeExists), errors.Is(err, session.ErrNoNode):
			// Another program has written, created or deleted the znode: read it again.
		case session.Retryable(err):
		default:
			return operr.New("zones", "write", z.path, errors.Join(err, unanswered))
		}
	}
}

// try reads the zones, changes them and writes them once.
func (z *Zones) try(ctx context.Context, change Change) error {
	inc, err := z.session.Incarnation(ctx)
	if err != nil {
		return err
	}
	if err := inc.Sync(ctx, z.path); err != nil {
		return err
	}
	data, stat, err := inc.Get(ctx, z.path)
	missing := errors.Is(err, session.ErrNoNode)
	if err != nil && !missing {
		return err
	}
	now, err := decode(data)
	if err != nil {
		return operr.Because(ErrUnreadable, err)
	}
	next := maps.Clone(change(now))
	maps.DeleteFunc(next, func(_ kiel.Partition, zone string) bool { return zone == "" })
	if maps.Equal(now, next) {
		return nil
	}
	if err := checkAll(next); err != nil {
		return err
	}
	written, err := encode(next)
	if err != nil {
		return err
	}
	if missing {
		if err = inc.EnsurePath(ctx, z.parent); err == nil {
			_, err = inc.Create(ctx, z.path, written, session.Persistent)
		}
	} else {
		_, err = inc.Set(ctx, z.path, written, stat.Version)
	}
	if large, ok := errors.AsType[*session.TooLargeError](err); ok {
		return operr.Mark(fmt.Errorf("%w: %d bytes of data: %s", ErrTooLarge, len(written), large.Reason()), large)
	}
	return err
}
