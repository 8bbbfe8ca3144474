package ownership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
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
	id           allocfn.Partition
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
	off    sabotage.Rules

	mu     sync.Mutex
	epochs map[string]bool // epoch znodes that exist; their znodes are never deleted

	listed atomic.Pointer[listing] // what list found last
}

func newKeeper(o *Owner, off sabotage.Rules) *keeper {
	return &keeper{paths: o.paths, source: o.source, id: o.id, off: off, epochs: map[string]bool{}}
}

// claim claims ids and says what became of each.
func (k *keeper) claim(ctx context.Context, inc *session.Incarnation, ids []allocfn.Partition) []finding {
	c := &claimRound{keeper: k, inc: inc, out: make([]finding, 0, len(ids))}
	if k.off.Off(sabotage.Claims) {
		for _, id := range c.wanted(ids) {
			c.out = append(c.out, finding{id: id, fate: fateOurs, token: time.Now().UnixNano()})
		}
		return c.out
	}
	ids = c.leaveOut(ctx, ids)
	ids = c.makeEpochs(ctx, ids)
	c.send(ctx, ids)
	return c.out
}

// claimRound is one round of claims.
type claimRound struct {
	*keeper
	inc     *session.Incarnation
	version uint64
	out     []finding
	parents bool // of owners and epochs were made in this round
}

func (c *claimRound) say(f fate, err error, ids ...allocfn.Partition) {
	for _, id := range ids {
		c.out = append(c.out, finding{id: id, fate: f, err: err})
	}
}

// leaveOut drops those of many ids that are claimed already: one read instead of
// as many refused requests.
func (c *claimRound) leaveOut(ctx context.Context, ids []allocfn.Partition) []allocfn.Partition {
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
	free := make([]allocfn.Partition, 0, len(ids))
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
func (c *claimRound) wanted(ids []allocfn.Partition) []allocfn.Partition {
	p := c.source.current()
	if p == nil || p.inc != c.inc || !c.inc.Trusted() {
		c.say(fateUnsent, nil, ids...)
		return nil
	}
	c.version = p.version
	mine := make([]allocfn.Partition, 0, len(ids))
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
func (c *claimRound) send(ctx context.Context, ids []allocfn.Partition) {
	for len(ids) > 0 {
		ids = c.wanted(ids)
		data := record{Owner: c.source.Name(), Version: c.version, ID: c.id}.encode()
		n := c.fit(ids, data)
		c.sendBatch(ctx, ids[:n], data)
		ids = ids[n:]
	}
}

func (c *claimRound) ops(id allocfn.Partition, data []byte) [2]session.Op {
	return [2]session.Op{
		session.SetOp(c.paths.epoch(id), data, -1),
		session.CreateOp(c.paths.owner(id), data, session.Ephemeral),
	}
}

// fit returns how many of ids go into one packet, at least one.
func (c *claimRound) fit(ids []allocfn.Partition, data []byte) int {
	room := c.inc.MaxPacket()
	for n, id := range ids {
		for _, op := range c.ops(id, data) {
			room -= session.OpSize(op)
		}
		if n == batchSize || n > 0 && room < 0 {
			return n
		}
	}
	return len(ids)
}

// sendBatch claims ids in one multi. One that is refused is taken out, and the
// others are sent again.
func (c *claimRound) sendBatch(ctx context.Context, ids []allocfn.Partition, data []byte) {
	for len(ids) > 0 {
		ops := make([]session.Op, 0, 2*len(ids))
		for _, id := range ids {
			pair := c.ops(id, data)
			ops = append(ops, pair[:]...)
		}
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
				ids = append(ids[:i:i], ids[i+1:]...)
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
			c.sendBatch(ctx, ids[:len(ids)/2:len(ids)/2], data)
			ids = ids[len(ids)/2:]
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
func (c *claimRound) repair(ctx context.Context, id allocfn.Partition, refused *session.MultiError) bool {
	epoch := refused.Index%2 == 0
	switch {
	case epoch && errors.Is(refused, session.ErrNoNode):
		c.forget(id)
		return len(c.makeEpochs(ctx, []allocfn.Partition{id})) == 1
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

func (k *keeper) forget(id allocfn.Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.epochs, id.String())
}

func (k *keeper) known(id allocfn.Partition) bool {
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
func (c *claimRound) makeEpochs(ctx context.Context, ids []allocfn.Partition) []allocfn.Partition {
	missing := c.missing(ids)
	if len(missing) > 1 {
		names, _, err := c.inc.Children(ctx, c.paths.epochs)
		if err == nil {
			c.learn(names...)
			missing = c.missing(missing)
		}
	}
	failed := map[allocfn.Partition]bool{}
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
	made := make([]allocfn.Partition, 0, len(ids))
	for _, id := range ids {
		if !failed[id] {
			made = append(made, id)
		}
	}
	return made
}

func (c *claimRound) missing(ids []allocfn.Partition) []allocfn.Partition {
	var missing []allocfn.Partition
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
func (c *claimRound) createEpochs(ctx context.Context, ids []allocfn.Partition) error {
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
