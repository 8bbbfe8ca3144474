package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Inspect describes a group by its znodes, for a program that is no member of it: what allocator.Inspect tells, and for each
// partition the owner, since when, with which token, after whom and why; for one without an owner who claimed it last, as
// Previous, and why. It reads one znode for each partition, 16 at a time, and writes nothing. They are not read at one moment:
// what changes meanwhile may show in parts.
//
// Odd claims are among the Disagreements. Errors are those of allocator.Inspect, allocator.ErrNoGroup among them, and those of
// reading the claims.
func Inspect(ctx context.Context, s *session.Session, group string) (*status.Group, error) {
	return InspectScope(ctx, s, group, Scope{})
}

// Scope limits of which partitions [InspectScope] reads the claims.
type Scope struct {
	Topics []string // reads those of these topics alone; empty for all
	Most   int      // reads none if there are more partitions than that; 0 for no limit
}

// InspectScope is [Inspect] for a part of a large group. Partitions outside of the scope have the state Owned, without an owner,
// or Free, and members' Owned does not count them.
func InspectScope(ctx context.Context, s *session.Session, group string, scope Scope) (*status.Group, error) {
	g, err := allocator.Inspect(ctx, s, group)
	if err != nil {
		return nil, operr.New(pkg, "", "", err)
	}
	for {
		inc, err := s.Incarnation(ctx)
		if err == nil {
			r := &inspection{inc: inc, paths: claims.NewPaths(session.Join("kiel", "groups", kiel.GroupZnode(group))), group: g, scope: scope}
			err = r.run(ctx)
		}
		if err == nil {
			return g, nil
		}
		if !session.Retryable(err) || ctx.Err() != nil {
			return nil, operr.New(pkg, "inspect group", fmt.Sprintf("%.120q", group), err)
		}
	}
}

// inspection is one call of Inspect.
type inspection struct {
	inc   *session.Incarnation
	paths claims.Paths
	group *status.Group
	scope Scope

	persistent, orphans, strays, unreadable []string // partitions
}

// claimed is a claim, or the epoch of a partition, as it was read.
type claimed struct {
	claims.Record
	stat   session.Stat
	exists bool
	bad    error // why the record can't be read
}

func (r *inspection) run(ctx context.Context) error {
	names, err := r.children(ctx, r.paths.Owners)
	if err != nil {
		return err
	}
	epochs, err := r.children(ctx, r.paths.Epochs)
	if err != nil {
		return err
	}
	ids := make([]string, len(r.group.Partitions))
	for i, p := range r.group.Partitions {
		ids[i] = kiel.Partition{Topic: p.Topic, ID: p.Partition}.String()
	}
	inScope := r.inScope(ids)
	claims, err := r.read(ctx, inScope, r.paths.Owners, names)
	if err != nil {
		return err
	}
	free := slices.Clone(inScope)
	for i := range ids {
		if claims[i].exists {
			free[i] = "" // its last owner is the one that it has
		}
	}
	last, err := r.read(ctx, free, r.paths.Epochs, epochs)
	if err != nil {
		return err
	}
	for i := range ids {
		r.describe(&r.group.Partitions[i], ids[i], claims[i], last[i])
		if _, ok := slices.BinarySearch(names, ids[i]); ok && inScope[i] == "" {
			r.group.Partitions[i].State = status.Owned
		}
	}
	r.findStrays(ids, names)
	r.countOwned()
	r.disagree()
	return nil
}

// inScope returns the ids, with "" for those whose claims are not to be read.
func (r *inspection) inScope(ids []string) []string {
	out := slices.Clone(ids)
	count := 0
	for i, p := range r.group.Partitions {
		if len(r.scope.Topics) > 0 && !slices.Contains(r.scope.Topics, p.Topic) {
			out[i] = ""
			continue
		}
		count++
	}
	if r.scope.Most > 0 && count > r.scope.Most {
		clear(out)
	}
	return out
}

// children returns the sorted names of a znode's children, none when there is no such znode.
func (r *inspection) children(ctx context.Context, path string) ([]string, error) {
	names, _, err := r.inc.Children(ctx, path)
	if err != nil && !errors.Is(err, session.ErrNoNode) {
		return nil, operr.New("", "list", path, err)
	}
	return names, nil
}

// read reads the records of ids, as far as they are among the names of a parent's children.
func (r *inspection) read(ctx context.Context, ids []string, parent string, names []string) ([]claimed, error) {
	out, errs := make([]claimed, len(ids)), make([]error, claims.Readers)
	var wg sync.WaitGroup
	for first := range min(claims.Readers, len(ids)) {
		wg.Go(func() {
			for i := first; i < len(ids) && errs[first] == nil; i += claims.Readers {
				if _, ok := slices.BinarySearch(names, ids[i]); ok {
					out[i], errs[first] = r.readOne(ctx, parent+"/"+ids[i])
				}
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func (r *inspection) readOne(ctx context.Context, path string) (claimed, error) {
	data, stat, err := r.inc.Get(ctx, path)
	switch {
	case errors.Is(err, session.ErrNoNode): // it went after the names were read
		return claimed{}, nil
	case errors.Is(err, session.ErrNoAuth):
		return claimed{exists: true, bad: err}, nil
	case err != nil:
		return claimed{}, operr.New("", "read", path, err)
	}
	c := claimed{stat: stat, exists: true}
	c.Record, c.bad = claims.Decode(data)
	return c, nil
}

// describe says of a partition who owns it, or who did last.
func (r *inspection) describe(p *status.Partition, id string, claim, epoch claimed) {
	p.State = status.Free
	if !claim.exists {
		if epoch.exists && epoch.bad == nil { // else nobody has claimed it yet, or nobody knows
			p.Previous = statuswrite.Name(epoch.Owner)
			p.Reason = &epoch.Reason
		}
		return
	}
	p.State, p.Since, p.Token = status.Owned, statuswrite.Millis(claim.stat.Ctime), claim.stat.Czxid
	if claim.bad == nil {
		p.Owner, p.Previous, p.Reason = statuswrite.Name(claim.Owner), claim.Previous, &claim.Reason
	}
	switch {
	case persistent(claim.stat):
		p.State = status.Blocked
		r.persistent = append(r.persistent, id)
	case claim.bad != nil:
		r.unreadable = append(r.unreadable, id)
	case !r.isMember(claim):
		r.orphans = append(r.orphans, id)
	}
}

// isMember reports whether a claim's owner is a member, of the same session as far as the sessions are known.
func (r *inspection) isMember(c claimed) bool {
	i, ok := r.member(statuswrite.Name(c.Owner))
	if !ok {
		return false
	}
	s := r.group.Members[i].Session
	return s == "" || s == fmt.Sprintf("0x%x", uint64(c.stat.EphemeralOwner))
}

func (r *inspection) member(name string) (int, bool) {
	return slices.BinarySearchFunc(r.group.Members, name, func(m status.Member, name string) int { return strings.Compare(m.Name, name) })
}

// findStrays finds claims of what is not in the set.
func (r *inspection) findStrays(ids, names []string) {
	sorted := slices.Sorted(slices.Values(ids))
	for _, name := range names {
		if _, ok := slices.BinarySearch(sorted, name); !ok {
			r.strays = append(r.strays, name)
		}
	}
}

func (r *inspection) countOwned() {
	for i := range r.group.Members {
		r.group.Members[i].Owned = new(int)
	}
	for _, p := range r.group.Partitions {
		if i, ok := r.member(p.Owner); ok && p.State == status.Owned {
			*r.group.Members[i].Owned++
		}
	}
}

// disagree adds what is odd about claims to the disagreements.
func (r *inspection) disagree() {
	for kind, names := range map[status.DisagreementKind][]string{
		status.PersistentClaim: r.persistent, status.OrphanClaim: r.orphans, status.StrayClaim: r.strays, status.UnreadableClaim: r.unreadable,
	} {
		if len(names) > 0 {
			r.group.Disagreements = append(r.group.Disagreements, claimDisagreement(kind, r.paths, names))
		}
	}
	sortDisagreements(r.group.Disagreements)
}
