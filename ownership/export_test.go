package ownership

import (
	"context"
	"iter"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/session"
)

// Plan is what a scripted allocator tells.
type Plan struct {
	Version     uint64
	Joined      bool
	Mine        []allocfn.Partition
	Incarnation *session.Incarnation
	Owner       func(allocfn.Partition) (string, bool)
}

// Source is a scripted allocator.
type Source interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
	Leave(ctx context.Context) error
	Session() *session.Session
	Group() string
	Name() string
	GroupPath() string
	Current() *Plan
	Follow(ctx context.Context) iter.Seq[*Plan]
}

// NewFromSource is New with a scripted allocator.
func NewFromSource(s Source, h Handler, opts Options) (*Owner, error) {
	return newOwner(scripted{s}, h, opts)
}

type scripted struct{ Source }

func (s scripted) current() *plan { return s.plan(s.Current()) }

func (s scripted) follow(ctx context.Context) iter.Seq[*plan] {
	return func(yield func(*plan) bool) {
		for p := range s.Follow(ctx) {
			if !yield(s.plan(p)) {
				return
			}
		}
	}
}

func (s scripted) plan(p *Plan) *plan {
	if p == nil {
		return nil
	}
	return &plan{version: p.Version, joined: p.Joined, mine: p.Mine, inc: p.Incarnation, owner: p.Owner}
}

// Waiting is how many calls of Observer wait.
func Waiting(o *Owner) int {
	o.tell.mu.Lock()
	defer o.tell.mu.Unlock()
	return len(o.tell.queue)
}
