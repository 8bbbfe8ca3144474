// Package claims makes the requests about the claims of a group: claim, look, check, release, list, await. It knows neither plans
// nor handlers, and keeps nothing but which epoch znodes exist and what was listed last.
//
// A claim is an ephemeral znode below owners. It is made in one transaction with a write of its partition's epoch znode, whose
// mzxid is the fencing token. The results of that transaction prove the claim; a request without an answer proves nothing, and is
// followed by a look.
package claims

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Outcome is what became of a request about one claim.
type Outcome int

// The outcomes.
const (
	Unsure    Outcome = iota // no answer: the claim is possibly ours
	Ours                     // the claim exists and is ours
	Gone                     // there is no claim of ours
	Taken                    // there is a claim, maybe another's
	Unsent                   // nothing was sent: no longer wanted, or not trusted
	NoRoom                   // nothing was sent: over the session's budget
	Forbidden                // refused for another reason; see Err
)

// Finding is what is known of one claim after a request.
type Finding struct {
	ID           kiel.Partition
	Outcome      Outcome
	Token        int64 // czxid of the owner znode
	Seen         int64 // the last transaction that has changed one of the claim's two znodes
	EpochVersion int32
	EpochGone    bool // there is no epoch znode
	Foreign      bool // ours, but the epoch is not: another has written it
	Err          error
}

// Wire makes the requests of one owner. Its methods wait for ZooKeeper, and may be called from any goroutine.
type Wire struct {
	paths Paths
	id    string // of the owner, in the data of its claims

	mu     sync.Mutex
	epochs map[string]bool // epoch znodes that exist; they are never deleted

	listed atomic.Pointer[listing] // what List has found last
}

// New returns the Wire of an owner whose claims have this id in their data.
func New(paths Paths, id string) *Wire {
	return &Wire{paths: paths, id: id, epochs: make(map[string]bool)}
}

// Data returns those of ids that are still to be claimed, and the data of their claims, right before these are sent.
type Data func(ids []kiel.Partition) ([]kiel.Partition, []Record)

// Claim sends claims for ids, and calls found with the outcomes, some at a time. With list it lists all claims first, and leaves
// out those that exist.
func (w *Wire) Claim(ctx context.Context, inc *session.Incarnation, ids []kiel.Partition, list bool, data Data, found func(...Finding)) {
	r := &round{Wire: w, inc: inc, found: found}
	r.look(ctx, list, len(w.missing(ids)) > 1)
	ids = r.makeEpochs(ctx, r.leaveOut(ids))
	sending[kiel.Partition]{
		inc: inc,
		ops: func(ids []kiel.Partition) ([]kiel.Partition, []session.Op) { return r.claimOps(ids, data) },
		done: func(id kiel.Partition, results []session.OpResult) {
			epoch := results[0].Stat
			r.add(Finding{ID: id, Outcome: Ours, Token: epoch.Mzxid, Seen: epoch.Mzxid, EpochVersion: epoch.Version})
		},
		refused: r.claimRefused,
		failed:  r.claimFailed,
		sent:    r.tell,
	}.send(ctx, ids)
	r.tell()
}

// round is one round of claims.
type round struct {
	*Wire
	inc   *session.Incarnation
	taken map[string]bool // names of claims that were listed; nil when they were not

	found     func(...Finding)
	adding    sync.Mutex
	findings  []Finding // that were not told yet
	parents   int       // how often the parents of owners and epochs were made
	noParents error     // why they could not be made
}

func (r *round) add(f Finding) {
	r.adding.Lock()
	defer r.adding.Unlock()
	r.findings = append(r.findings, f)
}

// tell calls found with the findings.
func (r *round) tell() {
	r.adding.Lock()
	findings := r.findings
	r.findings = nil
	r.adding.Unlock()
	if len(findings) > 0 {
		r.found(findings...)
	}
}

func (r *round) say(f Outcome, err error, ids ...kiel.Partition) {
	for _, id := range ids {
		r.add(Finding{ID: id, Outcome: f, Err: err})
	}
}

// why returns why the parents of owners and epochs could not be made, if that was tried, or else err.
func (r *round) why(err error) error {
	r.adding.Lock()
	defer r.adding.Unlock()
	if errors.Is(err, session.ErrNoNode) && r.noParents != nil {
		return r.noParents
	}
	return err
}

// look lists the claims and the epochs, at the same time, and makes their parents if these are missing. Without the lists all
// requests are made, and meet the same trouble.
func (r *round) look(ctx context.Context, claims, epochs bool) {
	var wg sync.WaitGroup
	if claims {
		wg.Go(func() {
			names, _, err := r.inc.Children(ctx, r.paths.Owners)
			if errors.Is(err, session.ErrNoNode) {
				r.makeParents(ctx)
			}
			if err != nil {
				return
			}
			r.taken = make(map[string]bool, len(names))
			for _, name := range names {
				r.taken[name] = true
			}
		})
	}
	if epochs {
		wg.Go(func() {
			if names, _, err := r.inc.Children(ctx, r.paths.Epochs); err == nil {
				r.learn(names...)
			}
		})
	}
	wg.Wait()
}

// leaveOut drops the ids that are claimed already.
func (r *round) leaveOut(ids []kiel.Partition) []kiel.Partition {
	free := make([]kiel.Partition, 0, len(ids))
	for _, id := range ids {
		if r.taken[id.String()] {
			r.say(Taken, nil, id)
		} else {
			free = append(free, id)
		}
	}
	return free
}

// claimOps returns the ids that are still wanted, and the two operations of each claim.
func (r *round) claimOps(ids []kiel.Partition, data Data) ([]kiel.Partition, []session.Op) {
	var wanted []kiel.Partition
	var records []Record
	if r.inc.Trusted() {
		wanted, records = data(ids)
	}
	if len(wanted) < len(ids) {
		still := make(map[kiel.Partition]bool, len(wanted))
		for _, id := range wanted {
			still[id] = true
		}
		for _, id := range ids {
			if !still[id] {
				r.say(Unsent, nil, id)
			}
		}
	}
	ops := make([]session.Op, 0, 2*len(wanted))
	for i, id := range wanted {
		content := records[i].Encode()
		ops = append(ops, session.SetOp(r.paths.Epoch(id), content, -1), session.CreateOp(r.paths.Owner(id), content, session.Ephemeral))
	}
	return wanted, ops
}

// claimRefused makes what the claim of id lacked and returns true, or reports the outcome of the claim and returns false.
func (r *round) claimRefused(ctx context.Context, id kiel.Partition, op int, err error) bool {
	const epoch, owner = 0, 1
	switch {
	case op == epoch && errors.Is(err, session.ErrNoNode):
		r.forget(id)
		return len(r.makeEpochs(ctx, []kiel.Partition{id})) == 1
	case op == owner && errors.Is(err, session.ErrNodeExists):
		r.say(Taken, nil, id)
		return false
	case op == owner && errors.Is(err, session.ErrNoNode) && r.makeParents(ctx):
		return true
	default:
		r.say(Forbidden, r.why(operr.New("", "claim", id.String(), err)), id)
		return false
	}
}

func (r *round) claimFailed(ids []kiel.Partition, err error) {
	switch {
	case errors.Is(err, session.ErrUncertain):
		r.say(Unsure, err, ids...)
	case ended(err):
		r.say(Gone, err, ids...)
	case errors.Is(err, session.ErrEphemeralBudget):
		r.say(NoRoom, err, ids...)
	default:
		r.say(Forbidden, operr.New("", "claim", "", err), ids...)
	}
}

// ended reports whether the ZooKeeper session is over, and all claims with it.
func ended(err error) bool {
	return errors.Is(err, session.ErrSessionExpired) || errors.Is(err, session.ErrClosed)
}

// maxParents is how often a round makes the parents of owners and epochs: somebody may delete them again.
const maxParents = 10

// makeParents makes the parents of owners and epochs. It returns false if a request that lacked them is not to be sent again.
func (r *round) makeParents(ctx context.Context) bool {
	r.adding.Lock()
	defer r.adding.Unlock()
	if r.parents++; r.parents > maxParents {
		return false
	}
	for _, path := range []string{r.paths.Owners, r.paths.Epochs} {
		if err := r.inc.EnsurePath(ctx, path); err != nil {
			r.noParents = operr.New("", "create", path, err)
			return false
		}
	}
	return true
}
