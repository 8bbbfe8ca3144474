package ownership_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// brain is a scripted allocator: the test says who owns what. Like the real one it tells a joined plan of each trusted
// incarnation, and one that is not joined when trust ends or after Leave.
type brain struct {
	ses   *session.Session
	group string
	name  string
	fail  chan error // ends Run
	onRun func()     // called when Leave has removed the member

	mu      sync.Mutex
	owner   map[kiel.Partition]string
	reason  status.Reason
	moves   map[kiel.Partition]allocator.Move
	members []string // those that the plan gives something to, and this one
	version uint64
	left    bool
	keep    func()        // when not nil, Keep calls it
	kept    bool          // Keep was called
	leaveIn chan struct{} // when not nil, Leave waits for it
	asked   func()        // when not nil, Current calls it first
	latest  *ownership.Plan
	newer   chan struct{}
	changed chan struct{}
	stopped chan struct{}
	once    sync.Once
	done    chan struct{}
}

func newBrain(ses *session.Session, group, name string) *brain {
	return &brain{
		ses: ses, group: group, name: name, fail: make(chan error, 1),
		newer: make(chan struct{}), changed: make(chan struct{}, 1), stopped: make(chan struct{}), done: make(chan struct{}),
	}
}

// assign says who owns what from now on.
func (b *brain) assign(owner map[kiel.Partition]string) { b.assignFor(owner, status.Reason{}) }

// assignFor is assign with the reason for which partitions move.
func (b *brain) assignFor(owner map[kiel.Partition]string, reason status.Reason) {
	b.mu.Lock()
	before := b.owner
	b.owner, b.reason = owner, reason
	moves := map[kiel.Partition]allocator.Move{}
	members := map[string]bool{b.name: true}
	for id, name := range owner {
		members[name] = true
		if from, ok := before[id]; ok && from == name {
			moves[id] = b.moves[id]
		} else {
			moves[id] = allocator.Move{Version: b.version + 1, At: time.Now(), From: from, Reason: reason, Took: time.Millisecond}
		}
	}
	b.moves, b.members = moves, slices.Sorted(maps.Keys(members))
	b.mu.Unlock()
	b.change()
}

func (b *brain) change() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *brain) publish(inc *session.Incarnation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version++
	joined := inc.Context().Err() == nil && !b.left && b.owner != nil
	owner, moves := b.owner, b.moves
	p := &ownership.Plan{
		Version: b.version, Joined: joined, Incarnation: inc, Reason: b.reason, Members: b.members,
		Move:    func(id kiel.Partition) (allocator.Move, bool) { m, ok := moves[id]; return m, ok },
		Owner:   func(id kiel.Partition) (string, bool) { name, ok := owner[id]; return name, ok },
		Planned: func() []kiel.Partition { return slices.Collect(maps.Keys(owner)) },
	}
	if joined {
		for id, name := range owner {
			p.Partitions = append(p.Partitions, id)
			if name == b.name {
				p.Mine = append(p.Mine, id)
			}
		}
		kiel.SortPartitions(p.Mine)
		kiel.SortPartitions(p.Partitions)
	}
	b.latest = p
	close(b.newer)
	b.newer = make(chan struct{})
}

func (b *brain) Run(ctx context.Context) error {
	defer close(b.done)
	for {
		inc, err := b.ses.Incarnation(ctx)
		if err != nil {
			return nil
		}
		for inc.Context().Err() == nil {
			b.publish(inc)
			select {
			case <-b.changed:
			case <-inc.Context().Done():
			case err := <-b.fail:
				return err
			case <-b.stopped:
				return nil
			case <-ctx.Done():
				return nil
			}
		}
		b.publish(inc)
	}
}

func (b *brain) Stop(ctx context.Context) error {
	b.once.Do(func() { close(b.stopped) })
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *brain) Leave(ctx context.Context) error {
	b.mu.Lock()
	wait := b.leaveIn
	b.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	b.left = true
	b.mu.Unlock()
	b.change()
	if b.onRun != nil {
		b.onRun()
	}
	return nil
}

func (b *brain) Keep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept = true; b.keep != nil {
		b.keep()
	}
}

func (b *brain) Kept() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept
}

func (b *brain) hasLeft() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}

func (b *brain) Session() *session.Session { return b.ses }
func (b *brain) Group() string             { return b.group }
func (b *brain) Member() string            { return b.name }
func (b *brain) GroupPath() string         { return "/kiel/groups/" + b.group }

func (b *brain) Current() *ownership.Plan {
	b.mu.Lock()
	asked := b.asked
	b.mu.Unlock()
	if asked != nil {
		asked()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latest
}

func (b *brain) Follow(ctx context.Context) iter.Seq[*ownership.Plan] {
	return func(yield func(*ownership.Plan) bool) {
		for {
			b.mu.Lock()
			p, newer := b.latest, b.newer
			b.mu.Unlock()
			if p != nil && !yield(p) {
				return
			}
			select {
			case <-newer:
			case <-ctx.Done():
				return
			}
		}
	}
}
