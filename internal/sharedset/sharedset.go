package sharedset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// kindSet is the kind of error in the log of a set that can't be read.
const kindSet = "set"

// Set is a handle on one set. It may be used by several goroutines.
type Set struct {
	session     *session.Session
	path        string
	lock        *lock.Lock
	lockTimeout time.Duration
	logger      *slog.Logger
	errs        *errlog.Log
	updates     *prometheus.CounterVec

	reader  *watched.Reader[View]
	changed atomic.Pointer[View] // what Changed returns
}

// New returns a handle on the set at path. It checks its arguments and registers the metric; it does no I/O. The other methods
// succeed only while the session runs.
func New(s *session.Session, path string, opts Options) (*Set, error) {
	if s == nil {
		return nil, operr.New("sharedset", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("sharedset", "", "", err)
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := lock.New(s, session.Join(path, "lock"), lock.Options{Identifier: opts.Identifier, Logger: opts.Logger})
	if err != nil {
		return nil, operr.New("sharedset", "", "", err)
	}
	updates, err := newUpdates(opts.Registerer)
	if err != nil {
		return nil, operr.New("sharedset", "", "", err)
	}
	set := &Set{
		session:     s,
		path:        path,
		lock:        l,
		lockTimeout: opts.LockTimeout,
		logger:      opts.Logger.With("component", "sharedset", "path", path),
		updates:     updates,
	}
	set.errs = errlog.New(set.logger)
	set.reader = watched.New(watched.Options[View]{
		Session: s, Path: path, Package: "sharedset",
		Look: set.look, Refused: func(err error) *View { return &View{Err: err} }, Complete: set.complete, Newer: newer,
	})
	return set, nil
}

// maxData is the least limit of data that is read, in bytes: what the largest packet of a server with default limits holds.
const maxData = 1 << 20

// decodeFor decodes data that was read under inc.
func decodeFor(inc *session.Incarnation, data []byte) ([]string, error) {
	if limit := max(maxData, inc.MaxPacket()); len(data) > limit {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrUnreadable, len(data), limit)
	}
	items, err := decode(data)
	if err != nil {
		return nil, operr.Because(ErrUnreadable, err)
	}
	return items, nil
}

// Read returns the items of the set at path, sorted, as they are now or later. It creates nothing and watches nothing, and blocks
// for a Sync and a read. Errors are ErrUnreadable, the session's, ErrNoNode if there is no set, and the cause of ctx's end.
func Read(ctx context.Context, inc *session.Incarnation, path string) ([]string, error) {
	v, err := readSynced(ctx, inc, path)
	if err != nil {
		return nil, operr.New("sharedset", "read", path, err)
	}
	return v.Items, nil
}

func readSynced(ctx context.Context, inc *session.Incarnation, path string) (*View, error) {
	if err := inc.Sync(ctx, path); err != nil {
		return nil, err
	}
	data, stat, err := inc.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	v := viewOf(stat)
	v.Items, err = decodeFor(inc, data)
	return v, err
}
