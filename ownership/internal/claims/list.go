package claims

import (
	"context"
	"errors"
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
)

// Names are the names of claims, sorted bytewise. They are never changed.
type Names []string

// Has reports whether a partition is claimed.
func (n Names) Has(id kiel.Partition) bool {
	_, found := slices.BinarySearch(n, id.String())
	return found
}

// Same reports whether both are what List has returned, with no claim created or deleted in between.
func (n Names) Same(other Names) bool {
	return len(n) == len(other) && (len(n) == 0 || &n[0] == &other[0])
}

// listing is what List has found.
type listing struct {
	names   Names
	stat    session.Stat // of their parent
	history uint64       // of the incarnation
}

// List returns, after a Sync, the names of all claims of the group. It lists them again only if their parent's metadata tell that
// some were created or deleted; anew reports whether it has.
func (w *Wire) List(ctx context.Context, inc *session.Incarnation) (names Names, anew bool, err error) {
	if err := inc.Sync(ctx, w.paths.Owners); err != nil {
		return nil, false, operr.New("", "sync", w.paths.Owners, err)
	}
	if last := w.listed.Load(); last != nil && last.history == inc.History() {
		exists, stat, err := inc.Exists(ctx, w.paths.Owners)
		if err != nil {
			return nil, false, operr.New("", "list", w.paths.Owners, err)
		}
		if exists && watched.SameChildren(stat, last.stat) {
			return last.names, false, nil
		}
	}
	names, stat, err := inc.Children(ctx, w.paths.Owners)
	if err != nil && !errors.Is(err, session.ErrNoNode) {
		return nil, false, operr.New("", "list", w.paths.Owners, err)
	}
	w.listed.Store(&listing{names, stat, inc.History()})
	return names, true, nil
}
