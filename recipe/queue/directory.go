package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

const (
	// DefaultPriority is the priority that kazoo puts with by default.
	DefaultPriority = 100

	maxPriority = 999
	prefix      = "entry-"
)

// Options of a queue. The zero value works.
type Options struct {
	// Logger gets errors that no call can return. While Get of a LockingQueue waits because all entries are held, Logger gets a
	// warning that names the holder of the first one, if that has not changed for long: after about half a minute, and then
	// whenever the time has doubled.
	// With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// directory is the directory of a queue's entries.
type directory struct {
	session     *session.Session
	path        string      // the queue's path, for errors and the log
	entries     string      // the path of the entries' parent
	exhausted   atomic.Bool // whether the sequence numbers are used up
	undeletable undeletable // entries to skip
	newest      atomic.Pointer[listing]
	log         *slog.Logger
}

func check(s *session.Session, path string) error {
	if s == nil {
		return operr.New("queue", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return operr.New("queue", "", "", err)
	}
	return nil
}

func (d *directory) wrap(ctx context.Context, op string, err error) error {
	return hold.Wrap(ctx, "queue", op, d.path, err)
}

// put creates an entry for each value, all in one transaction.
func (d *directory) put(ctx context.Context, values [][]byte, priority int) ([]string, error) {
	if priority < 0 || priority > maxPriority {
		return nil, fmt.Errorf("%w: %d", ErrPriority, priority)
	}
	if len(values) == 0 {
		return nil, nil
	}
	ops := make([]session.Op, len(values))
	for i, value := range values {
		ops[i] = session.CreateOp(fmt.Sprintf("%s/%s%03d-", strings.TrimSuffix(d.entries, "/"), prefix, priority), value, session.PersistentSequential)
	}
	for {
		if d.exhausted.Load() {
			return nil, ErrSequenceExhausted
		}
		inc, err := d.session.Incarnation(ctx)
		if err != nil {
			return nil, err
		}
		results, err := inc.Multi(ctx, ops...)
		switch {
		case err == nil:
			paths := make([]string, len(results))
			for i, r := range results {
				paths[i] = r.Path
				if isLate(r.Path[strings.LastIndexByte(r.Path, '/')+1:]) {
					d.exhausted.Store(true) // for later puts; this entry is in order
				}
			}
			return paths, nil
		case errors.Is(err, session.ErrUncertain):
			return nil, err
		case ctx.Err() != nil && (errors.Is(err, session.ErrNoNode) || errors.Is(err, session.ErrSessionExpired)):
			return nil, context.Cause(ctx)
		case errors.Is(err, session.ErrNodeExists):
			stuck, lookErr := d.stuck(ctx, inc)
			if lookErr != nil || !stuck {
				return nil, errors.Join(operr.New("", "another entry has the next sequence number", "", err), lookErr)
			}
			d.exhausted.Store(true)
		case errors.Is(err, session.ErrNoNode):
			if err := d.ensure(ctx, inc, d.entries); err != nil {
				return nil, err
			}
		case !errors.Is(err, session.ErrSessionExpired):
			return nil, err
		}
	}
}

// isLate reports whether an entry of that name has one of the last sequence numbers. A handle that got one puts nothing more.
func isLate(name string) bool {
	_, number, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
	n, err := strconv.ParseInt(number, 10, 64)
	return err == nil && (n < 0 || n >= seqnode.FirstRefused)
}

// stuck reports whether a sequence number came twice because the numbers have come to their end. Otherwise somebody created an
// entry by name.
func (d *directory) stuck(ctx context.Context, inc *session.Incarnation) (bool, error) {
	names, stat, err := inc.Children(ctx, d.entries)
	if errors.Is(err, session.ErrNoNode) {
		return false, nil
	}
	return err == nil && (creates(stat) >= seqnode.FirstRefused || slices.ContainsFunc(names, isLate)), err
}

// ensure creates a directory. It returns nil if the directory exists, or if the caller is to try again.
func (d *directory) ensure(ctx context.Context, inc *session.Incarnation, path string) error {
	err := inc.EnsurePath(ctx, path)
	if errors.Is(err, session.ErrUncertain) {
		return context.Cause(ctx) // if ctx has not ended, the next request shows whether the directory exists
	}
	if errors.Is(err, session.ErrSessionExpired) && ctx.Err() == nil {
		return nil
	}
	return err
}

// length returns how many children the directory has.
func (d *directory) length(ctx context.Context) (int, error) {
	for {
		inc, err := d.session.Incarnation(ctx)
		if err != nil {
			return 0, err
		}
		if err = inc.Sync(ctx, d.entries); errors.Is(err, session.ErrNoNode) {
			err = nil
		}
		var exists bool
		var stat session.Stat
		if err == nil {
			exists, stat, err = inc.Exists(ctx, d.entries)
		}
		switch {
		case err == nil && !exists:
			return 0, nil
		case err == nil:
			return int(stat.NumChildren), nil
		case !errors.Is(err, session.ErrSessionExpired) || ctx.Err() != nil:
			return 0, err
		}
	}
}
