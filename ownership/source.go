package ownership

import (
	"context"
	"iter"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/session"
)

// source is what an owner needs of an allocator.
type source interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
	Leave(ctx context.Context) error
	Session() *session.Session
	Group() string
	Name() string
	GroupPath() string
	// current returns the newest plan, nil before the first.
	current() *plan
	// follow yields plans; it may skip, but always reaches the newest.
	follow(ctx context.Context) iter.Seq[*plan]
}

// plan is what an owner needs of a snapshot.
type plan struct {
	version uint64
	joined  bool
	mine    []allocfn.Partition
	inc     *session.Incarnation // under which it was made
	owner   func(allocfn.Partition) (string, bool)
}

// source of the real allocator.
type allocation struct {
	*allocator.PartitionAllocator
}

func (a allocation) current() *plan { return newPlan(a.Snapshot()) }

func (a allocation) follow(ctx context.Context) iter.Seq[*plan] {
	return func(yield func(*plan) bool) {
		for s := range a.Updates(ctx) {
			if !yield(newPlan(s)) {
				return
			}
		}
	}
}

func newPlan(s *allocator.Snapshot) *plan {
	if s == nil {
		return nil
	}
	return &plan{version: s.Version, joined: s.Joined, mine: s.Mine(), inc: s.Incarnation, owner: s.Owner}
}
