package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// fate is what became of a request about one claim.
type fate int

const (
	fateOurs      fate = iota // the claim stands and is ours
	fateGone                  // there is no claim of ours
	fateTaken                 // there is a claim, maybe another's
	fateUnsure                // no answer: the claim is possibly ours
	fateUnsent                // nothing was sent: no longer wanted, or not trusted
	fateNoRoom                // nothing was sent: over the session's budget
	fateForbidden             // refused for another reason; see err
)

// finding is what is known of one claim after a request.
type finding struct {
	id           kiel.Partition
	fate         fate
	token        int64 // czxid of the owner znode
	epochVersion int32
	epochGone    bool // there is no epoch znode
	foreign      bool // ours, but the epoch is not: another has written it
	err          error
}

// batchSize is how many claims travel in one multi; each is two operations.
const batchSize = 100

// keeper makes the requests. Its methods wait for ZooKeeper, on workers.
type keeper struct {
	paths  paths
	source source
	id     string // of the Owner value

	mu     sync.Mutex
	epochs map[string]bool // epoch znodes that exist; their znodes are never deleted

	listed atomic.Pointer[listing] // what list found last
}

func newKeeper(o *Owner) *keeper {
	return &keeper{paths: o.paths, source: o.source, id: o.id, epochs: map[string]bool{}}
}

// claim claims ids, whose origins it writes down, and says what became of each.
func (k *keeper) claim(ctx context.Context, inc *session.Incarnation, ids []kiel.Partition, origins map[kiel.Partition]origin) []finding {
	c := &claimRound{keeper: k, inc: inc, origins: origins, out: make([]finding, 0, len(ids))}
	ids = c.leaveOut(ctx, ids)
	ids = c.makeEpochs(ctx, ids)
	c.send(ctx, ids)
	return c.out
}

// claimRound is one round of claims.
type claimRound struct {
	*keeper
	inc     *session.Incarnation
	origins map[kiel.Partition]origin // never changed
	version uint64
	out     []finding
	parents bool // of owners and epochs were made in this round
}

func (c *claimRound) say(f fate, err error, ids ...kiel.Partition) {
	for _, id := range ids {
		c.out = append(c.out, finding{id: id, fate: f, err: err})
	}
}

// leaveOut drops those of many ids that are claimed already: one read instead of
// as many refused requests.
func (c *claimRound) leaveOut(ctx context.Context, ids []kiel.Partition) []kiel.Partition {
	if len(ids) < 4 {
		return ids
	}
	names, _, err := c.inc.Children(ctx, c.paths.owners)
	if err != nil {
		return ids // the claims will meet the same trouble
	}
	taken := make(map[string]bool, len(names))
	for _, name := range names {
		taken[name] = true
	}
	free := make([]kiel.Partition, 0, len(ids))
	for _, id := range ids {
		if taken[id.String()] {
			c.say(fateTaken, nil, id)
		} else {
			free = append(free, id)
		}
	}
	return free
}

// wanted drops the ids that the newest plan does not give to us, and all when the
// session is not trusted now.
func (c *claimRound) wanted(ids []kiel.Partition) []kiel.Partition {
	p := c.source.current()
	if p == nil || p.inc != c.inc || !c.inc.Trusted() {
		c.say(fateUnsent, nil, ids...)
		return nil
	}
	c.version = p.version
	mine := make([]kiel.Partition, 0, len(ids))
	for _, id := range ids {
		if name, ok := p.owner(id); ok && name == c.source.Name() {
			mine = append(mine, id)
		} else {
			c.say(fateUnsent, nil, id)
		}
	}
	return mine
}

// send claims ids in batches.
func (c *claimRound) send(ctx context.Context, ids []kiel.Partition) {
	for len(ids) > 0 {
		ids = c.wanted(ids)
		ops := c.ops(ids[:min(len(ids), batchSize)])
		n := c.fit(ops)
		c.sendBatch(ctx, ids[:n], ops[:2*n])
		ids = ids[n:]
	}
}

// ops returns the two operations of each claim.
func (c *claimRound) ops(ids []kiel.Partition) []session.Op {
	ops := make([]session.Op, 0, 2*len(ids))
	for _, id := range ids {
		o := c.origins[id]
		data := record{Owner: c.source.Name(), Version: c.version, ID: c.id, Previous: status.Cut(o.previous), Reason: o.reason}.encode()
		ops = append(ops, session.SetOp(c.paths.epoch(id), data, -1), session.CreateOp(c.paths.owner(id), data, session.Ephemeral))
	}
	return ops
}

// fit returns of how many claims the operations go into one packet, at least one if there are any.
func (c *claimRound) fit(ops []session.Op) int {
	room := c.inc.MaxPacket()
	for i := 0; i < len(ops); i += 2 {
		room -= session.OpSize(ops[i]) + session.OpSize(ops[i+1])
		if i > 0 && room < 0 {
			return i / 2
		}
	}
	return len(ops) / 2
}

// sendBatch claims ids by their ops in one multi. One that is refused is taken out, and the
// others are sent again.
func (c *claimRound) sendBatch(ctx context.Context, ids []kiel.Partition, ops []session.Op) {
	for len(ids) > 0 {
		results, err := c.inc.Multi(ctx, ops...)
		if err == nil {
			for i, id := range ids {
				stat := results[2*i].Stat
				c.out = append(c.out, finding{id: id, fate: fateOurs, token: stat.Mzxid, epochVersion: stat.Version})
			}
			return
		}
		refused, ok := errors.AsType[*session.MultiError](err)
		switch {
		case ok && refused.Index >= 0 && refused.Index < len(ops):
			i := refused.Index / 2
			if !c.repair(ctx, ids[i], refused) {
				ids, ops = slices.Concat(ids[:i], ids[i+1:]), slices.Concat(ops[:2*i], ops[2*i+2:])
			}
			if !c.inc.Trusted() {
				c.say(fateUnsent, nil, ids...)
				return
			}
		case errors.Is(err, session.ErrUncertain):
			c.say(fateUnsure, err, ids...)
			return
		case errors.Is(err, session.ErrSessionExpired), errors.Is(err, session.ErrClosed):
			c.say(fateGone, err, ids...)
			return
		case (errors.Is(err, session.ErrEphemeralBudget) || errors.Is(err, session.ErrTooLarge)) && len(ids) > 1:
			half := len(ids) / 2
			c.sendBatch(ctx, ids[:half], ops[:2*half])
			ids, ops = ids[half:], ops[2*half:]
		case errors.Is(err, session.ErrEphemeralBudget):
			c.say(fateNoRoom, err, ids...)
			return
		default:
			c.say(fateForbidden, fmt.Errorf("ownership: claim: %w", err), ids...)
			return
		}
	}
}

// repair makes what the claim of id lacked and returns true, or says what became
// of the claim and returns false.
func (c *claimRound) repair(ctx context.Context, id kiel.Partition, refused *session.MultiError) bool {
	epoch := refused.Index%2 == 0
	switch {
	case epoch && errors.Is(refused, session.ErrNoNode):
		c.forget(id)
		return len(c.makeEpochs(ctx, []kiel.Partition{id})) == 1
	case !epoch && errors.Is(refused, session.ErrNodeExists):
		c.say(fateTaken, nil, id)
		return false
	case !epoch && errors.Is(refused, session.ErrNoNode) && !c.parents:
		err := c.makeParents(ctx)
		if err != nil {
			c.say(fateForbidden, err, id)
		}
		return err == nil
	default:
		c.say(fateForbidden, fmt.Errorf("ownership: claim %s: %w", id, refused), id)
		return false
	}
}

func (k *keeper) forget(id kiel.Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.epochs, id.String())
}

func (k *keeper) known(id kiel.Partition) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.epochs[id.String()]
}

func (k *keeper) learn(names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		k.epochs[name] = true
	}
}

func (c *claimRound) makeParents(ctx context.Context) error {
	c.parents = true
	for _, path := range []string{c.paths.owners, c.paths.epochs} {
		if err := c.inc.EnsurePath(ctx, path); err != nil {
			return fmt.Errorf("ownership: create %s: %w", path, err)
		}
	}
	return nil
}

// makeEpochs creates the epoch znodes that are missing. It returns the ids that
// have one now and says what became of the others.
func (c *claimRound) makeEpochs(ctx context.Context, ids []kiel.Partition) []kiel.Partition {
	missing := c.missing(ids)
	if len(missing) > 1 {
		names, _, err := c.inc.Children(ctx, c.paths.epochs)
		if err == nil {
			c.learn(names...)
			missing = c.missing(missing)
		}
	}
	failed := map[kiel.Partition]bool{}
	for len(missing) > 0 {
		n := min(len(missing), batchSize)
		if err := c.createEpochs(ctx, missing[:n]); err != nil {
			c.say(fateForbidden, err, missing[:n]...)
			for _, id := range missing[:n] {
				failed[id] = true
			}
		}
		missing = missing[n:]
	}
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

func (c *claimRound) missing(ids []kiel.Partition) []kiel.Partition {
	var missing []kiel.Partition
	for _, id := range ids {
		if !c.known(id) {
			missing = append(missing, id)
		}
	}
	return missing
}

// createEpochs creates epoch znodes in one multi. Those that others create
// meanwhile are taken out. An uncertain outcome is like a good one: the znodes
// hold nothing and never go.
func (c *claimRound) createEpochs(ctx context.Context, ids []kiel.Partition) error {
	for len(ids) > 0 {
		ops := make([]session.Op, len(ids))
		for i, id := range ids {
			ops[i] = session.CreateOp(c.paths.epoch(id), nil, session.Persistent)
		}
		_, err := c.inc.Multi(ctx, ops...)
		refused, ok := errors.AsType[*session.MultiError](err)
		switch {
		case err == nil:
			for _, id := range ids {
				c.learn(id.String())
			}
			return nil
		case ok && errors.Is(err, session.ErrNodeExists) && refused.Index >= 0 && refused.Index < len(ids):
			i := refused.Index
			c.learn(ids[i].String())
			ids = append(ids[:i:i], ids[i+1:]...)
		case errors.Is(err, session.ErrNoNode) && !c.parents:
			if err := c.makeParents(ctx); err != nil {
				return err
			}
		case errors.Is(err, session.ErrTooLarge) && len(ids) > 1:
			if err := c.createEpochs(ctx, ids[:len(ids)/2:len(ids)/2]); err != nil {
				return err
			}
			ids = ids[len(ids)/2:]
		case errors.Is(err, session.ErrUncertain):
			return nil
		default:
			return fmt.Errorf("ownership: create epochs: %w", err)
		}
	}
	return nil
}
