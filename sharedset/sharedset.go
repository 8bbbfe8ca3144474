package sharedset

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Set is a handle on one set. It may be used by several goroutines.
type Set struct {
	session     *session.Session
	path        string
	lock        *lock.Lock
	lockTimeout time.Duration
	logger      *slog.Logger
	updates     *prometheus.CounterVec

	reader *watched.Reader[View]
}

// New returns a handle on the set at path. It checks its arguments and registers the
// metric; it does no I/O. The session must be running for the other methods to
// succeed.
func New(s *session.Session, path string, opts Options) (*Set, error) {
	if s == nil {
		return nil, errors.New("sharedset: no session")
	}
	if err := session.CheckPath(path); err != nil {
		return nil, fmt.Errorf("sharedset: %w", err)
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := lock.New(s, session.Join(path, "lock"), lock.Options{Identifier: opts.Identifier, Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("sharedset: %w", err)
	}
	updates, err := newUpdates(opts.Registerer)
	if err != nil {
		return nil, fmt.Errorf("sharedset: %w", err)
	}
	set := &Set{
		session:     s,
		path:        path,
		lock:        l,
		lockTimeout: opts.LockTimeout,
		logger:      opts.Logger.With("component", "sharedset", "path", path),
		updates:     updates,
	}
	set.reader = watched.New(watched.Options[View]{
		Session: s, Path: path, Package: "sharedset",
		Look: set.look, Refused: func(err error) *View { return &View{Err: err} }, Complete: set.complete, Newer: newer,
	})
	return set, nil
}

// maxData is how much data is read at least: what the largest packet of a server
// with default limits holds.
const maxData = 1 << 20

// read decodes the set's data and names the path when that is not possible.
func (s *Set) read(inc *session.Incarnation, data []byte) ([]string, error) {
	if limit := max(maxData, inc.MaxPacket()); len(data) > limit {
		return nil, fmt.Errorf("%w: %s: %d bytes, more than %d", ErrUnreadable, s.path, len(data), limit)
	}
	items, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, s.path, err)
	}
	return items, nil
}
