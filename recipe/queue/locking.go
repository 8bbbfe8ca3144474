package queue

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
)

// againPause is how long [LockingQueue.All] waits before an entry that could not be consumed may come again.
const againPause = time.Second

// LockingQueue is a handle on one queue whose entries are held while they are worked on.
// It may be used by several goroutines; each Get holds an entry of its own.
type LockingQueue struct {
	dir   directory
	taken string
	log   *slog.Logger
}

// NewLocking returns a handle on the locking queue at path. It checks its arguments and
// does no I/O. The session must be running for the methods to succeed.
func NewLocking(s *session.Session, path string, opts Options) (*LockingQueue, error) {
	if err := check(s, path); err != nil {
		return nil, err
	}
	log := defaultlog.Or(opts.Logger)
	return &LockingQueue{
		dir:   directory{session: s, path: path, entries: session.Join(path, "entries"), log: log},
		taken: session.Join(path, "taken"),
		log:   log,
	}, nil
}

// Put puts a value into the queue; see [Queue.Put].
func (q *LockingQueue) Put(ctx context.Context, value []byte, priority int) (string, error) {
	paths, err := q.dir.put(ctx, [][]byte{value}, priority)
	if err != nil {
		return "", q.dir.wrap(ctx, "put", err)
	}
	return paths[0], nil
}

// PutAll puts values in their order, all of them or none; see [Queue.PutAll].
func (q *LockingQueue) PutAll(ctx context.Context, values [][]byte, priority int) ([]string, error) {
	paths, err := q.dir.put(ctx, values, priority)
	if err != nil {
		return nil, q.dir.wrap(ctx, "put", err)
	}
	return paths, nil
}

// Len returns how many entries there are, those that are held included.
func (q *LockingQueue) Len(ctx context.Context) (int, error) {
	n, err := q.dir.length(ctx)
	if err != nil {
		return 0, q.dir.wrap(ctx, "len", err)
	}
	return n, nil
}

// Get holds the first entry that nobody holds; it waits until there is one. When ctx ends
// the error is a [*recipe.BlockedError] if all entries are held. Whatever the error, nothing is
// held; what may have been is given back in the background.
func (q *LockingQueue) Get(ctx context.Context) (*Held, error) {
	return q.get(ctx, "get", true)
}

// TryGet is Get without waiting. If there is nothing to take, the error wraps ErrEmpty, and is
// a [*recipe.BlockedError] if all entries are held.
func (q *LockingQueue) TryGet(ctx context.Context) (*Held, error) {
	return q.get(ctx, "try get", false)
}

// All gets entry after entry until ctx ends or Get fails; the last step has that error. An
// entry is consumed when the body of the loop has come to its end, by continue too; it is
// given back when the body is left by break, return or panic. A body that has called
// Consume or Release itself has decided. A step whose entry could not be consumed is
// followed by one with the same entry and the error; the loop goes on after it, and after a
// pause of a second if the entry may come again at once.
func (q *LockingQueue) All(ctx context.Context) iter.Seq2[*Held, error] {
	return func(yield func(*Held, error) bool) {
		for {
			h, err := q.Get(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if !q.step(ctx, h, yield) {
				return
			}
			if h.begun.Load() {
				continue
			}
			err = h.Consume(ctx)
			if err != nil && !yield(h, err) {
				return
			}
			if err != nil && !errors.Is(err, ErrLost) {
				_ = pause.Sleep(ctx, againPause)
			}
		}
	}
}

// step runs the loop's body, and gives the entry back unless that comes to its end.
func (q *LockingQueue) step(ctx context.Context, h *Held, yield func(*Held, error) bool) (goOn bool) {
	defer func() {
		if !goOn {
			_ = h.Release(ctx) // at once when ctx has ended: then it goes on in the background
		}
	}()
	return yield(h, nil)
}

func (q *LockingQueue) get(ctx context.Context, op string, wait bool) (*Held, error) {
	var b blockage
	for synced := wait; ; {
		h, err := q.once(ctx, wait, &b)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, errAgain), errors.Is(err, session.ErrSessionExpired):
			if ctx.Err() != nil {
				return nil, q.dir.wrap(ctx, op, context.Cause(ctx))
			}
		case errors.Is(err, ErrEmpty) && !synced && ctx.Err() == nil:
			synced = true
			if inc := q.dir.session.Current(); inc != nil {
				_ = inc.Sync(ctx, q.dir.path) // if it fails, so does the next look
			}
		default:
			return nil, q.dir.wrap(ctx, op, err)
		}
	}
}

// once lists the entries and holds the first that is free.
func (q *LockingQueue) once(ctx context.Context, wait bool, b *blockage) (*Held, error) {
	inc, err := q.dir.session.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	names, entriesWatch, err := q.dir.list(ctx, inc, q.dir.entries)
	if err != nil {
		return nil, err
	}
	defer entriesWatch.Stop()
	takenNames, takenWatch, err := q.dir.list(ctx, inc, q.taken)
	if err != nil {
		return nil, err
	}
	defer takenWatch.Stop()
	taken := make(map[string]bool, len(takenNames))
	for _, name := range takenNames {
		taken[name] = true
	}
	first, count, odd := "", 0, 0
	q.dir.odd.pass()
	for _, name := range names {
		if taken[name] {
			if count++; count == 1 {
				first = session.Join(q.taken, name)
			}
			continue
		}
		h, err := q.take(ctx, inc, name)
		switch {
		case errors.Is(err, errOdd):
			odd++
		case !errors.Is(err, errTaken):
			return h, err
		}
	}
	blocked := func(err error) error {
		if count == 0 {
			return err
		}
		return &recipe.BlockedError{Recipe: "queue", Path: q.dir.path, Blocker: first, Taken: count, Err: err}
	}
	if count+odd < len(names) {
		return nil, errAgain // others were quicker; there may be more behind
	}
	if !wait {
		return nil, blocked(ErrEmpty)
	}
	q.complain(ctx, inc, first, count, b)
	later, stop := q.dir.odd.later(odd)
	defer stop()
	select {
	case <-entriesWatch.C():
	case <-later:
	case <-takenWatch.C():
	case <-ctx.Done():
		return nil, blocked(context.Cause(ctx))
	}
	return nil, errAgain
}

// blockage is for how long a Get has found one entry in front of those that are taken. When another is, entries flow.
type blockage struct {
	first    string // path of who has it, "" if none is taken
	patience seqnode.Patience
}

// complain says who has the first of the entries that are taken, if it has been the same for long.
func (q *LockingQueue) complain(ctx context.Context, inc *session.Incarnation, first string, taken int, b *blockage) {
	if first != b.first {
		*b = blockage{first: first}
	}
	if first == "" {
		return
	}
	before := b.patience
	waited, over := b.patience.Over()
	if !over {
		return
	}
	if data, stat, err := seqnode.Read(ctx, inc, first); err != nil {
		b.patience = before // to be said when it can be read
	} else {
		q.log.WarnContext(ctx, "still waiting", "path", q.dir.path, "waited", waited, "taken", taken,
			"blocker", seqnode.Blocker{Path: first, Data: data, Stat: stat})
	}
}

// take holds an entry. The error is errTaken if another does, or the entry is gone, and errOdd if it can't be consumed.
func (q *LockingQueue) take(ctx context.Context, inc *session.Incarnation, name string) (*Held, error) {
	n := q.newNode(inc, name)
	if q.dir.odd.known(n.entry) {
		return nil, errOdd
	}
	data, stat, err := inc.Get(ctx, n.entry)
	if errors.Is(err, session.ErrNoNode) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	if q.dir.isOdd(ctx, n.entry, stat) {
		return nil, errOdd
	}
	if err := n.create(ctx, stat); err != nil {
		return nil, err
	}
	h, err := newHeld(ctx, n, append([]byte{}, data...), stat)
	if h == nil {
		n.own.Abandon(ctx)
		if err == nil {
			err = errAgain // trust has ended, or somebody removed it
		}
	}
	return h, err
}
