package ownership

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Plan is what a scripted allocator tells.
type Plan struct {
	Version     uint64
	Joined      bool
	Mine        []kiel.Partition
	Partitions  []kiel.Partition
	Incarnation *session.Incarnation
	Owner       func(kiel.Partition) (string, bool)
	Planned     func() []kiel.Partition
	Reason      status.Reason
	Move        func(kiel.Partition) (allocator.Move, bool)
	Members     []string
}

// Source is a scripted allocator.
type Source interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
	Leave(ctx context.Context) error
	Keep()
	Kept() bool
	Session() *session.Session
	Group() string
	Member() string
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
	return &plan{
		version: p.Version, joined: p.Joined, mine: p.Mine, inc: p.Incarnation, owner: p.Owner, reason: p.Reason, move: p.Move, planned: p.Planned,
		member: func(name string) bool { return slices.Contains(p.Members, name) },
	}
}

func (s scripted) mayBeMember(int64) bool { return true } // nothing is known of sessions

func (s scripted) alive(context.Context) error { return nil }

func (s scripted) waiting() string {
	if p := s.Current(); p == nil || !p.Joined {
		return "not joined"
	}
	return ""
}

// status tells the plan.
func (s scripted) status() *status.Group {
	g := statuswrite.Group(s.Group(), status.SourceMember, time.Now())
	if p := s.Current(); p != nil {
		for _, id := range p.Partitions {
			name, _ := p.Owner(id)
			g.Partitions = append(g.Partitions, status.Partition{Topic: id.Topic, Partition: id.ID, State: status.Elsewhere, Planned: name})
		}
		for _, name := range p.Members {
			g.Members = append(g.Members, status.Member{Name: name})
		}
	}
	return g
}

// Waiting is how many calls of Observer wait.
func Waiting(o *Owner) int { return o.users.observer.Waiting() }

// Version is the version that kiel_member_info shows.
func Version() string { return version() }

// Occupy keeps the loop from its inputs until gate is closed.
func Occupy(o *Owner, gate chan struct{}) { o.loop.Load().post(func() { <-gate }) }

// Miscounted says how the loop's counts of partitions differ from what a count of all gives, "" if they do not.
func Miscounted(o *Owner) (fault string) {
	l := o.loop.Load()
	if l == nil {
		return ""
	}
	_ = l.ask(context.Background(), func() {
		l.count()
		var all [numCounts]int
		for _, p := range l.parts {
			for c, is := range p.countsFor(l.view()) {
				all[c] += one(is)
			}
		}
		if l.counts != all {
			fault = fmt.Sprintf("counted %+v, there are %+v", l.counts, all)
		}
	})
	return fault
}

// IsShown reports whether the metrics refer to the owner, and so keep it in memory.
func IsShown(o *Owner) bool { return o.metrics.owner.Load() == o }
