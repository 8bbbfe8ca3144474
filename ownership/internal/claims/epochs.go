package claims

import (
	"context"
	"errors"
	"sync"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

func (w *Wire) forget(id kiel.Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.epochs, id.String())
}

func (w *Wire) learn(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.epochs[name] = true
	}
}

// missing returns those of ids whose epoch znodes are not known to exist.
func (w *Wire) missing(ids []kiel.Partition) []kiel.Partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []kiel.Partition
	for _, id := range ids {
		if !w.epochs[id.String()] {
			missing = append(missing, id)
		}
	}
	return missing
}

// makeEpochs creates the epoch znodes that are missing. It returns the ids that have one now and says what became of the others.
// An uncertain outcome is like a good one: the znodes hold nothing and are never deleted.
func (r *round) makeEpochs(ctx context.Context, ids []kiel.Partition) []kiel.Partition {
	var mu sync.Mutex
	failed := make(map[kiel.Partition]bool)
	fail := func(err error, ids ...kiel.Partition) {
		mu.Lock()
		defer mu.Unlock()
		r.say(Forbidden, err, ids...)
		for _, id := range ids {
			failed[id] = true
		}
	}
	sending[kiel.Partition]{
		inc: r.inc,
		ops: func(ids []kiel.Partition) ([]kiel.Partition, []session.Op) {
			ops := make([]session.Op, len(ids))
			for i, id := range ids {
				ops[i] = session.CreateOp(r.paths.Epoch(id), nil, session.Persistent)
			}
			return ids, ops
		},
		done: func(id kiel.Partition, _ []session.OpResult) { r.learn(id.String()) },
		refused: func(ctx context.Context, id kiel.Partition, _ int, err error) bool {
			switch {
			case errors.Is(err, session.ErrNodeExists): // others have created it meanwhile
				r.learn(id.String())
			case errors.Is(err, session.ErrNoNode) && r.makeParents(ctx):
				return true
			default:
				fail(r.why(operr.New("", "create", r.paths.Epoch(id), err)), id)
			}
			return false
		},
		failed: func(ids []kiel.Partition, err error) {
			if !errors.Is(err, session.ErrUncertain) {
				fail(operr.New("", "create epochs", "", err), ids...)
			}
		},
	}.send(ctx, r.missing(ids))
	if len(failed) == 0 {
		return ids
	}
	made := make([]kiel.Partition, 0, len(ids))
	for _, id := range ids {
		if !failed[id] {
			made = append(made, id)
		}
	}
	return made
}
