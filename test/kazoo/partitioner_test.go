package kazoo_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

// partitioners are a case's members, all with the same set and in one session, as in kazoo's tests.
type partitioners struct {
	*world
	client *client
	items  []string
	all    []*partitioner.SetPartitioner
}

func (w *world) partitioners(size int, change ...func(*session.Options)) *partitioners {
	w.Helper()
	ps := &partitioners{world: w, client: w.client("client", change...)}
	for i := range size {
		ps.items = append(ps.items, strconv.Itoa(i))
	}
	return ps
}

// start adds members.
func (ps *partitioners) start(identifiers ...string) {
	ps.Helper()
	for _, id := range identifiers {
		opts := partitioner.Options{Identifier: id, TimeBoundary: 200 * time.Millisecond, AcquireTimeout: limit}
		p := must[*partitioner.SetPartitioner](ps.world)(partitioner.New(ps.client.Session, ps.path, ps.items, opts))
		ps.must(p.Start(ps.Context()))
		ps.all = append(ps.all, p)
		ps.Cleanup(func() { ps.finish(p) })
	}
}

func (ps *partitioners) finish(p *partitioner.SetPartitioner) {
	ps.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ps.Context()), limit)
	defer cancel()
	if err := p.Finish(ctx); err != nil {
		ps.Error(err)
	}
}

func (ps *partitioners) release(p *partitioner.SetPartitioner) {
	ps.Helper()
	ctx, cancel := context.WithTimeout(ps.Context(), limit)
	defer cancel()
	ps.must(p.ReleaseSet(ctx))
}

// settle waits until all have what they shall have. Who must release meanwhile does: on a slow machine a member can begin to work
// before the next one has come.
func (ps *partitioners) settle(want ...[]string) {
	ps.Helper()
	ps.until(fmt.Sprintf("division into %q", want), func() bool {
		settled := true
		for i, p := range ps.all {
			if p.MustRelease() {
				ps.release(p)
			}
			settled = settled && p.Acquired() && slices.Equal(p.Items(), want[i])
		}
		return settled
	})
}

// untilRelease waits until members must release what they have.
func (ps *partitioners) untilRelease(members ...*partitioner.SetPartitioner) {
	ps.Helper()
	for _, p := range members {
		ps.until("RELEASE of "+p.Identifier(), p.MustRelease)
		if items := p.Items(); items != nil {
			ps.Errorf("%s has %q, which it must release", p.Identifier(), items)
		}
	}
}

// wantCause checks how an allocation ended.
func (ps *partitioners) wantCause(a *partitioner.Allocation, want error) {
	ps.Helper()
	ps.want(context.Cause(a.Context()), want)
}
