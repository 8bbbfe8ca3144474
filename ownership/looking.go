package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
)

// readers is how many reads of one look are under way at a time.
const readers = 16

// look reads, after a Sync, who holds the claims of ids.
func (k *keeper) look(ctx context.Context, inc *session.Incarnation, ids []kiel.Partition) []finding {
	out := make([]finding, len(ids))
	if err := inc.Sync(ctx, k.paths.owners); err != nil {
		for i, id := range ids {
			out[i] = failed(id, fmt.Errorf("ownership: sync %s: %w", k.paths.owners, err))
		}
		return out
	}
	var wg sync.WaitGroup
	for first := range min(readers, len(ids)) {
		wg.Go(func() {
			for i := first; i < len(ids); i += readers {
				out[i] = k.lookAt(ctx, inc, ids[i])
			}
		})
	}
	wg.Wait()
	return out
}

func (k *keeper) lookAt(ctx context.Context, inc *session.Incarnation, id kiel.Partition) finding {
	data, owner, err := inc.Get(ctx, k.paths.owner(id))
	switch {
	case errors.Is(err, session.ErrNoNode):
		return finding{id: id, fate: fateGone}
	case err != nil:
		return failed(id, fmt.Errorf("ownership: look at %s: %w", k.paths.owner(id), err))
	case !k.ours(inc, data, owner):
		return finding{id: id, fate: fateTaken}
	}
	exists, epoch, err := inc.Exists(ctx, k.paths.epoch(id))
	if err != nil {
		return failed(id, fmt.Errorf("ownership: look at %s: %w", k.paths.epoch(id), err))
	}
	return finding{
		id: id, fate: fateOurs, token: owner.Czxid, epochVersion: epoch.Version,
		epochGone: !exists, foreign: !exists || epoch.Mzxid != owner.Czxid,
	}
}

// failed is the finding of a read that brought nothing: the claim is as possibly
// ours as before, unless the ZooKeeper session has ended.
func failed(id kiel.Partition, err error) finding {
	if errors.Is(err, session.ErrSessionExpired) || errors.Is(err, session.ErrClosed) {
		return finding{id: id, fate: fateGone}
	}
	return finding{id: id, fate: fateUnsure, err: err}
}

// ours says whether a claim is of this session and of this Owner value: two
// members may share a session.
func (k *keeper) ours(inc *session.Incarnation, data []byte, owner session.Stat) bool {
	if owner.EphemeralOwner != inc.SessionID() {
		return false
	}
	r, err := decode(data)
	return err == nil && r.ID == k.id
}

// claimNames are the names of claims, sorted bytewise.
type claimNames []string

func (n claimNames) has(id kiel.Partition) bool {
	_, found := slices.BinarySearch(n, id.String())
	return found
}

// same says that both are what list returned, with no claim created or deleted in between.
func (n claimNames) same(other claimNames) bool {
	return len(n) == len(other) && (len(n) == 0 || &n[0] == &other[0])
}

// listing is what list found.
type listing struct {
	names   claimNames   // never changed
	stat    session.Stat // of their parent
	history uint64       // of the incarnation
}

// list returns, after a Sync, the names of all claims of the group, which must not be changed. It lists them again only if their
// parent's metadata tell that some were created or deleted.
func (k *keeper) list(ctx context.Context, inc *session.Incarnation) (claimNames, error) {
	if err := inc.Sync(ctx, k.paths.owners); err != nil {
		return nil, fmt.Errorf("ownership: sync %s: %w", k.paths.owners, err)
	}
	if last := k.listed.Load(); last != nil && last.history == inc.History() {
		exists, stat, err := inc.Exists(ctx, k.paths.owners)
		if err != nil {
			return nil, fmt.Errorf("ownership: list %s: %w", k.paths.owners, err)
		}
		if exists && watched.SameChildren(stat, last.stat) {
			return last.names, nil
		}
	}
	names, stat, err := inc.Children(ctx, k.paths.owners)
	if err != nil && !errors.Is(err, session.ErrNoNode) {
		return nil, fmt.Errorf("ownership: list %s: %w", k.paths.owners, err)
	}
	k.listed.Store(&listing{names, stat, inc.History()})
	return names, nil
}

// await waits until the claim of id is free or ours (fateGone, fateUnsure), and
// tells conflict of each znode in the way, again when its data changes. It ends with fateUnsent when ctx does.
func (k *keeper) await(ctx context.Context, inc *session.Incarnation, id kiel.Partition, conflict func(standing)) finding {
	var seen int64
	for {
		data, owner, watch, err := inc.GetW(ctx, k.paths.owner(id))
		switch {
		case ctx.Err() != nil:
			return finding{id: id, fate: fateUnsent}
		case errors.Is(err, session.ErrNoNode), errors.Is(err, session.ErrSessionExpired), errors.Is(err, session.ErrClosed):
			return finding{id: id, fate: fateGone}
		case err != nil:
			return finding{id: id, fate: fateForbidden, err: fmt.Errorf("ownership: wait for %s: %w", k.paths.owner(id), err)}
		}
		if k.ours(inc, data, owner) {
			watch.Stop()
			return finding{id: id, fate: fateUnsure}
		}
		if owner.Mzxid != seen {
			seen = owner.Mzxid
			conflict(standingOf(data, owner))
		}
		select {
		case <-watch.C():
		case <-ctx.Done():
			watch.Stop()
			return finding{id: id, fate: fateUnsent}
		}
	}
}

// watch calls verified once the claim of id is found to be the one with this
// token, and then watches it until it is not, or ctx ends. It returns why the
// claim is lost, nil when ctx ended or the session did.
func (k *keeper) watch(ctx context.Context, inc *session.Incarnation, id kiel.Partition, token int64, verified func()) error {
	for {
		watches, err := k.verify(ctx, inc, id, token)
		if err != nil {
			if ended(ctx) || errors.Is(err, session.ErrSessionExpired) || errors.Is(err, session.ErrClosed) {
				err = nil
			}
			return err
		}
		if verified != nil {
			verified()
			verified = nil
		}
		select {
		case <-watches[0].C():
		case <-watches[1].C():
		case <-ctx.Done():
		}
		watches[0].Stop()
		watches[1].Stop()
		if ended(ctx) {
			return nil
		}
	}
}

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

var errVanished = errors.New("the claim has gone, or is not the one that was made")

// verify compares a claim's two znodes with its token and watches them.
func (k *keeper) verify(ctx context.Context, inc *session.Incarnation, id kiel.Partition, token int64) (watches [2]*session.Watch, err error) {
	exists, owner, w, err := inc.ExistsW(ctx, k.paths.owner(id))
	if err != nil {
		return watches, fmt.Errorf("look at %s: %w", k.paths.owner(id), err)
	}
	watches[0] = w
	if !exists || owner.Czxid != token || owner.EphemeralOwner != inc.SessionID() {
		w.Stop()
		return watches, fmt.Errorf("%s: %w", k.paths.owner(id), errVanished)
	}
	exists, epoch, w, err := inc.ExistsW(ctx, k.paths.epoch(id))
	if err != nil {
		watches[0].Stop()
		return watches, fmt.Errorf("look at %s: %w", k.paths.epoch(id), err)
	}
	watches[1] = w
	if !exists || epoch.Mzxid != token {
		watches[0].Stop()
		w.Stop()
		return watches, fmt.Errorf("%s: %w", k.paths.epoch(id), errVanished)
	}
	return watches, nil
}
