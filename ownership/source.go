package ownership

import (
	"context"
	"iter"
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// source is what an owner needs of an allocator.
type source interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
	Leave(ctx context.Context) error
	// Keep and Kept are the allocator's.
	Keep()
	Kept() bool
	Session() *session.Session
	Group() string
	Member() string
	GroupPath() string
	// current returns the newest plan, nil before the first.
	current() *plan
	// follow yields plans; it may skip, but always reaches the newest.
	follow(ctx context.Context) iter.Seq[*plan]
	// mayBeMember is the allocator's MayBeMember.
	mayBeMember(session int64) bool
	// status, alive and waiting are the allocator's Status, Alive and Waiting.
	status() *status.Group
	alive(ctx context.Context) error
	waiting() string
}

// plan is what an owner needs of a snapshot.
type plan struct {
	version uint64
	joined  bool
	mine    []kiel.Partition
	inc     *session.Incarnation // under which it was made
	reason  status.Reason        // of the mapping
	owner   func(kiel.Partition) (string, bool)
	planned func() []kiel.Partition                     // that members are to claim
	move    func(kiel.Partition) (allocator.Move, bool) // how the partition came to its owner
	member  func(name string) bool                      // whether the mapping has a member
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

func (a allocation) mayBeMember(session int64) bool  { return a.MayBeMember(session) }
func (a allocation) status() *status.Group           { return a.Status() }
func (a allocation) alive(ctx context.Context) error { return a.Alive(ctx) }
func (a allocation) waiting() string                 { return a.NotReady() }

func newPlan(s *allocator.Snapshot) *plan {
	if s == nil {
		return nil
	}
	return &plan{
		version: s.Version, joined: s.Joined, mine: s.Mine(), inc: s.Incarnation, reason: s.Reason, owner: s.Planned, move: s.Move, planned: s.Claimable,
		member: func(name string) bool {
			_, found := slices.BinarySearch(s.Members, name)
			return found
		},
	}
}
