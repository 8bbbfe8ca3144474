package queue

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Queue is a handle on one queue. It may be used by several goroutines.
type Queue struct {
	base
}

// New returns a handle on the queue at path. It checks its arguments and does no I/O. The session must be running for the methods
// to succeed.
func New(s *session.Session, path string, opts Options) (*Queue, error) {
	if err := check(s, path); err != nil {
		return nil, err
	}
	return &Queue{base{directory{session: s, path: path, entries: path, log: defaultlog.Or(opts.Logger)}}}, nil
}

// Get takes the first value off the queue; it waits until there is one. If the error wraps [session.ErrUncertain], Get returns
// the value too: it is not known whether the entry was deleted, so another may get the value as well. When ctx ends while the
// delete is under way, Get waits for its outcome as long as the session is trusted.
func (q *Queue) Get(ctx context.Context) ([]byte, error) {
	return q.get(ctx, "get", true)
}

// TryGet is Get without waiting. The error wraps ErrEmpty if there is nothing.
func (q *Queue) TryGet(ctx context.Context) ([]byte, error) {
	return q.get(ctx, "try get", false)
}

func (q *Queue) get(ctx context.Context, op string, wait bool) ([]byte, error) {
	for synced := wait; ; {
		value, err := q.once(ctx, wait)
		switch {
		case err == nil:
			return value, nil
		case value != nil:
			return value, q.dir.wrap(ctx, op, err)
		case errors.Is(err, errAgain), errors.Is(err, session.ErrSessionExpired):
			if ctx.Err() != nil {
				return nil, q.dir.wrap(ctx, op, context.Cause(ctx))
			}
		case errors.Is(err, ErrEmpty) && !synced && ctx.Err() == nil:
			synced = true
			if inc := q.dir.session.Current(); inc != nil {
				_ = inc.Sync(ctx, q.dir.path) // if it fails, so does the next list
			}
		default:
			return nil, q.dir.wrap(ctx, op, err)
		}
	}
}

// errAgain says that the entries are to be listed again.
var errAgain = errors.New("list the entries again")

// once takes the first entry that no other process deletes before. It lists the entries if one may have been created since the
// newest list.
func (q *Queue) once(ctx context.Context, wait bool) ([]byte, error) {
	inc, err := q.dir.session.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	entries, watch, err := q.dir.listed(ctx, inc)
	if err != nil {
		return nil, err
	}
	if watch != nil {
		defer watch.Stop()
	}
	count, skipped := entries.len(), 0
	q.dir.undeletable.refresh()
	for name, ok := entries.after(""); ok; name, ok = entries.after(name) {
		path := session.Join(q.dir.entries, name)
		if q.dir.undeletable.has(path) {
			skipped++
			continue
		}
		data, stat, err := inc.Get(ctx, path)
		if errors.Is(err, session.ErrNoNode) {
			entries.drop(name)
			continue
		}
		if err != nil {
			return nil, err
		}
		if q.dir.isUndeletable(ctx, path, stat) {
			skipped++
			continue
		}
		switch taken, err := q.remove(ctx, inc, path, stat); {
		case taken && err != nil:
			return append([]byte{}, data...), err
		case taken:
			entries.drop(name)
			return append([]byte{}, data...), nil
		case err != nil:
			return nil, err
		}
		entries.drop(name) // another process deleted it
	}
	if skipped < count {
		return nil, errAgain // other processes took these; new ones may be behind
	}
	q.dir.forget(entries) // another round wants a new list, and a watch
	switch {
	case watch == nil:
		return nil, errAgain
	case !wait:
		return nil, ErrEmpty
	}
	later, stop := q.dir.undeletable.timer(skipped)
	defer stop()
	select {
	case <-watch.C():
		return nil, errAgain
	case <-later:
		return nil, errAgain
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// remove deletes an entry. It returns true if the entry was deleted, or may have been: then the error wraps session.ErrUncertain.
func (q *Queue) remove(ctx context.Context, inc *session.Incarnation, path string, seen session.Stat) (bool, error) {
	results := make(chan error, 1)
	go func() { results <- inc.Delete(context.WithoutCancel(ctx), path, seen.Version) }()
	var err error
	select {
	case err = <-results:
	case <-ctx.Done(): // the delete was sent: a caller that gives up now may have taken the entry
		select {
		case err = <-results:
		case <-inc.Context().Done():
			return true, operr.Because(session.ErrUncertain, context.Cause(ctx))
		}
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, session.ErrNoNode):
		return false, nil
	case errors.Is(err, session.ErrBadVersion), errors.Is(err, session.ErrNotEmpty):
		return false, errAgain // the entry has changed since it was read
	case !errors.Is(err, session.ErrUncertain):
		return false, err
	}
	if ctx.Err() != nil {
		return true, operr.Because(err, context.Cause(ctx))
	}
	// The request has returned, so a read after a Sync shows whether the server carried it out.
	if syncErr := inc.Sync(ctx, q.dir.path); syncErr != nil {
		return true, err
	}
	exists, now, lookErr := inc.Exists(ctx, path)
	if lookErr != nil || !exists || now.Czxid != seen.Czxid {
		return true, err // deleted by this request, or by another process that has the value now
	}
	return false, errAgain
}
