package queue

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
)

// againPause is how long [LockingQueue.All] waits before an entry that could not be consumed may come again.
const againPause = time.Second

// LockingQueue is a handle on one queue whose entries are held while they are worked on. Several goroutines may use it; each Get
// holds an entry of its own.
type LockingQueue struct {
	base

	taken string // path of the directory of the holds' znodes
	log   *slog.Logger
	errs  *errlog.Log // of what the servers refuse and All outlasts
}

// NewLocking returns a handle on the locking queue at path. It checks its arguments and does no I/O. The session must be running
// for the methods to succeed.
func NewLocking(s *session.Session, path string, opts Options) (*LockingQueue, error) {
	if err := check(s, path); err != nil {
		return nil, err
	}
	log := defaultlog.Or(opts.Logger)
	return &LockingQueue{
		base:  base{directory{session: s, path: path, entries: session.Join(path, "entries"), log: log}},
		taken: session.Join(path, "taken"),
		log:   log,
		errs:  errlog.New(log.With("component", "queue", "path", path)),
	}, nil
}

// Get holds the first entry that is free; it waits until there is one. When ctx ends the error is a [*recipe.BlockedError] if all
// entries are held. After an error nothing is held: if the outcome of a take is unknown, its znode is deleted in the background.
func (q *LockingQueue) Get(ctx context.Context) (*Held, error) {
	return q.get(ctx, "get", true)
}

// TryGet is Get without waiting. If there is nothing to take, the error wraps ErrEmpty, and is a [*recipe.BlockedError] if all
// entries are held.
func (q *LockingQueue) TryGet(ctx context.Context) (*Held, error) {
	return q.get(ctx, "try get", false)
}

// All gets entry after entry until ctx ends or Get fails; the last step has that error. Once All has got an entry, it outlasts
// what the servers refuse Get, by an ACL or a quota for instance: it logs the error and tries again, after pauses that grow to
// 5 s.
//
// All consumes an entry when the body of the loop comes to its end, by continue too, and gives it back when break, return or
// panic leaves the body. If the body has called Consume or Release itself, All does neither. If an entry can't be consumed, the
// next step has the same entry and the error; then the loop goes on, after a pause of a second if the entry may come again at
// once.
func (q *LockingQueue) All(ctx context.Context) iter.Seq2[*Held, error] {
	return func(yield func(*Held, error) bool) {
		refusals := hold.NewRefusals(q.errs, "get")
		for got := false; ; got = true {
			h, err := q.Get(ctx)
			if err != nil && got && refusals.Outlast(ctx, err) {
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			refusals.Over()
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

// step runs the loop's body, and gives the entry back unless the body comes to its end.
func (q *LockingQueue) step(ctx context.Context, h *Held, yield func(*Held, error) bool) (goOn bool) {
	defer func() {
		if !goOn {
			_ = h.Release(ctx) // when ctx has ended it returns at once and goes on in the background
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
				_ = inc.Sync(ctx, q.dir.path) // if it fails, so does the next list
			}
		default:
			return nil, q.dir.wrap(ctx, op, err)
		}
	}
}

// once holds the first entry that is free. It lists the entries if one may have been created since the newest list.
func (q *LockingQueue) once(ctx context.Context, wait bool, b *blockage) (*Held, error) {
	inc, err := q.dir.session.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	entries, entriesWatch, err := q.dir.listed(ctx, inc)
	if err != nil {
		return nil, err
	}
	if entriesWatch != nil {
		defer entriesWatch.Stop()
	}
	takenNames, _, takenWatch, err := q.dir.children(ctx, inc, q.taken)
	if err != nil {
		return nil, err
	}
	defer takenWatch.Stop()
	taken := make(map[string]bool, len(takenNames))
	for _, name := range takenNames {
		taken[name] = true
	}
	all, first, count, skipped := entries.len(), "", 0, 0
	q.dir.undeletable.refresh()
	for name, ok := entries.after(""); ok; name, ok = entries.after(name) {
		if taken[name] {
			if count++; count == 1 {
				first = session.Join(q.taken, name)
			}
			continue
		}
		h, err := q.take(ctx, inc, name)
		switch {
		case errors.Is(err, errUndeletable):
			skipped++
		case errors.Is(err, errGone):
			entries.drop(name)
		case !errors.Is(err, errTaken):
			return h, err
		}
	}
	blocked := func(err error) error {
		if count == 0 {
			return err
		}
		return &recipe.BlockedError{Recipe: "queue", Path: q.dir.path, Blocker: first, Detail: hold.Detail(count, "taken"), Err: err}
	}
	if count+skipped < all {
		return nil, errAgain // other processes took these; new ones may be behind
	}
	q.dir.forget(entries) // another round wants new lists, and watches
	switch {
	case entriesWatch == nil:
		return nil, errAgain
	case !wait:
		return nil, blocked(ErrEmpty)
	}
	q.warnWaiting(ctx, inc, first, count, b)
	later, stop := q.dir.undeletable.timer(skipped)
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

// blockage measures for how long the same entry has been the first of the taken ones. When another comes first, entries flow.
type blockage struct {
	first    string // path of the hold's znode, "" if no entry is taken
	patience seqnode.Patience
}

// warnWaiting logs a warning with the holder of the first taken entry, if that entry has been the first for long.
func (q *LockingQueue) warnWaiting(ctx context.Context, inc *session.Incarnation, first string, taken int, b *blockage) {
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
		b.patience = before // log the warning when the znode can be read
	} else {
		q.log.WarnContext(ctx, "still waiting", "path", q.dir.path, "waited", waited, "taken", taken,
			"blocker", seqnode.Blocker{Path: first, Data: data, Stat: stat})
	}
}

// take holds an entry. The error is errTaken if another take has it, errGone if it is gone, and errUndeletable if it can't be
// consumed.
func (q *LockingQueue) take(ctx context.Context, inc *session.Incarnation, name string) (*Held, error) {
	n := q.newNode(inc, name)
	if q.dir.undeletable.has(n.entry) {
		return nil, errUndeletable
	}
	data, stat, err := inc.Get(ctx, n.entry)
	if errors.Is(err, session.ErrNoNode) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	if q.dir.isUndeletable(ctx, n.entry, stat) {
		return nil, errUndeletable
	}
	if err := n.create(ctx, stat); err != nil {
		return nil, err
	}
	h, err := newHeld(ctx, n, append([]byte{}, data...), stat)
	if h == nil {
		n.own.Abandon(ctx)
		if err == nil {
			err = errAgain // trust has ended, or somebody deleted the znode
		}
	}
	return h, err
}
