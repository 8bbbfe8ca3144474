package claims

import (
	"context"
	"errors"
	"sync"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Readers is how many reads of one look are under way at a time.
const Readers = 16

// each calls f for each item, some at a time, and returns what it has returned.
func each[T any](items []T, f func(T) Finding) []Finding {
	out := make([]Finding, len(items))
	var wg sync.WaitGroup
	for first := range min(Readers, len(items)) {
		wg.Go(func() {
			for i := first; i < len(items); i += Readers {
				out[i] = f(items[i])
			}
		})
	}
	wg.Wait()
	return out
}

// Look reads, after a Sync, whose the claims of ids are: Ours, Gone, Taken, or Unsure with an error.
func (w *Wire) Look(ctx context.Context, inc *session.Incarnation, ids []kiel.Partition) []Finding {
	err := inc.Sync(ctx, w.paths.Owners)
	return each(ids, func(id kiel.Partition) Finding {
		if err != nil {
			return unread(id, operr.New("", "sync", w.paths.Owners, err))
		}
		return w.lookAt(ctx, inc, id)
	})
}

func (w *Wire) lookAt(ctx context.Context, inc *session.Incarnation, id kiel.Partition) Finding {
	data, owner, err := inc.Get(ctx, w.paths.Owner(id))
	switch {
	case errors.Is(err, session.ErrNoNode):
		return Finding{ID: id, Outcome: Gone}
	case err != nil:
		return unread(id, operr.New("", "look at", w.paths.Owner(id), err))
	case !w.ours(inc, data, owner):
		return Finding{ID: id, Outcome: Taken}
	}
	exists, epoch, err := inc.Exists(ctx, w.paths.Epoch(id))
	if err != nil {
		return unread(id, operr.New("", "look at", w.paths.Epoch(id), err))
	}
	return Finding{
		ID: id, Outcome: Ours, Token: owner.Czxid, Seen: owner.Mzxid, EpochVersion: epoch.Version,
		EpochGone: !exists, Foreign: !exists || epoch.Mzxid != owner.Czxid,
	}
}

// unread is the finding of a read that brought nothing: the claim is as possibly ours as before, unless the ZooKeeper session has
// ended.
func unread(id kiel.Partition, err error) Finding {
	if ended(err) {
		return Finding{ID: id, Outcome: Gone}
	}
	return Finding{ID: id, Outcome: Unsure, Err: err}
}

// ours reports whether a claim is of this session and of this owner: two members may share a session.
func (w *Wire) ours(inc *session.Incarnation, data []byte, owner session.Stat) bool {
	if owner.EphemeralOwner != inc.SessionID() {
		return false
	}
	r, err := Decode(data)
	return err == nil && r.ID == w.id
}

// errVanished says that a claim is not what it was.
var errVanished = errors.New("the claim has gone, or is not the one that was made")

// Check reads whether claims are what they were, by their tokens: Ours, or Gone with an error that says why not. Unsent says that
// ctx or the session has ended meanwhile, so that nothing was found.
func (w *Wire) Check(ctx context.Context, inc *session.Incarnation, claims []Finding) []Finding {
	return each(claims, func(c Finding) Finding {
		found, err := w.check(ctx, inc, c)
		switch {
		case err == nil:
			return found
		case ctx.Err() != nil, ended(err):
			return Finding{ID: c.ID, Token: c.Token, Outcome: Unsent}
		}
		return Finding{ID: c.ID, Token: c.Token, Outcome: Gone, Err: err}
	})
}

func (w *Wire) check(ctx context.Context, inc *session.Incarnation, c Finding) (Finding, error) {
	exists, owner, err := inc.Exists(ctx, w.paths.Owner(c.ID))
	if err != nil {
		return c, operr.New("", "look at", w.paths.Owner(c.ID), err)
	}
	if !exists || owner.Czxid != c.Token || owner.EphemeralOwner != inc.SessionID() {
		return c, operr.New("", "", w.paths.Owner(c.ID), errVanished)
	}
	exists, epoch, err := inc.Exists(ctx, w.paths.Epoch(c.ID))
	if err != nil {
		return c, operr.New("", "look at", w.paths.Epoch(c.ID), err)
	}
	if !exists || epoch.Mzxid != c.Token {
		return c, operr.New("", "", w.paths.Epoch(c.ID), errVanished)
	}
	c.Outcome, c.Seen = Ours, owner.Mzxid
	return c, nil
}

// Await waits until the claim of id is free (Gone) or ours (Unsure). It calls found for each znode that is in the way, and again
// when its data change. When ctx ends it returns Unsent.
func (w *Wire) Await(ctx context.Context, inc *session.Incarnation, id kiel.Partition, found func(data []byte, stat session.Stat)) Finding {
	var seen int64
	for {
		data, owner, watch, err := inc.GetW(ctx, w.paths.Owner(id))
		switch {
		case ctx.Err() != nil:
			return Finding{ID: id, Outcome: Unsent}
		case errors.Is(err, session.ErrNoNode), ended(err):
			return Finding{ID: id, Outcome: Gone}
		case err != nil:
			return Finding{ID: id, Outcome: Forbidden, Err: operr.New("", "wait for", w.paths.Owner(id), err)}
		}
		if w.ours(inc, data, owner) {
			watch.Stop()
			return Finding{ID: id, Outcome: Unsure}
		}
		if owner.Mzxid != seen {
			seen = owner.Mzxid
			found(data, owner)
		}
		select {
		case <-watch.C():
			if watch.Deleted() { // if there is another claim by now, ours is refused, and waited for again
				return Finding{ID: id, Outcome: Gone}
			}
		case <-ctx.Done():
			watch.Stop()
			return Finding{ID: id, Outcome: Unsent}
		}
	}
}
