package allocator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/sharedset"
)

// PartitionAllocator is one member of a group: it takes part in the membership
// and says who owns which partition. Its methods may be called from any
// goroutine.
type PartitionAllocator struct {
	session *session.Session
	group   string
	name    string
	opts    Options
	metrics *metrics
	party   *party.Party
	set     *sharedset.Set
	zones   *zones.Zones
	loop    *loop
	seed    *seed

	ran    atomic.Bool
	latest atomic.Pointer[published]
	manual chan chan error // calls of Rebalance
	ready  chan struct{}   // closed when Ready may return
	stop   chan struct{}   // closed when Stop was called
	ended  chan struct{}   // closed when the last snapshot was published
	done   chan struct{}   // closed when Run returns

	setReady, setStop func() // close the channel, once
	end               error  // why Run ended; set before ended is closed
}

// published is a snapshot and what is closed when there is a newer one.
type published struct {
	snapshot *Snapshot // nil in the first
	newer    chan struct{}
}

// New returns a member of the named group, that is to be called name in it. It
// only validates, and joins all the faults it finds; it sends nothing and starts
// no goroutine.
func New(s *session.Session, group, name string, opts Options) (*PartitionAllocator, error) {
	opts, err := opts.withDefaults()
	seeded, seedErr := items(opts.Seed)
	if seedErr != nil {
		seedErr = fmt.Errorf("field Seed: %w", seedErr)
	}
	faults := errors.Join(session.CheckGroup(group), session.CheckMember(name), err, seedErr)
	if s == nil {
		faults = errors.Join(faults, errors.New("no session"))
	}
	if faults != nil {
		return nil, fmt.Errorf("allocator: new: %w", faults)
	}
	data, err := newRecord(opts).encode()
	if err != nil {
		return nil, fmt.Errorf("allocator: new: %w", err)
	}
	a := &PartitionAllocator{
		session: s, group: group, name: name, opts: opts,
		seed:   newSeed(seeded),
		manual: make(chan chan error),
		ready:  make(chan struct{}), stop: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
	}
	a.setReady = sync.OnceFunc(func() { close(a.ready) })
	a.setStop = sync.OnceFunc(func() { close(a.stop) })
	a.latest.Store(&published{newer: make(chan struct{})})
	log := opts.Logger.With("component", "allocator", "group", group, "member", name)

	var metricsErr, partyErr, setErr, zonesErr error
	reg := withGroup(opts.Registerer, group)
	a.metrics, metricsErr = newMetrics(reg)
	a.party, partyErr = party.New(s, a.MembersPath(), party.Options{Name: name, Data: data, Logger: opts.Logger})
	a.set, setErr = sharedset.New(s, a.PartitionsPath(), sharedset.Options{Identifier: name, Logger: opts.Logger, Registerer: reg})
	a.zones, zonesErr = zones.New(s, a.GroupPath(), zonesName, opts.Logger)
	if err := errors.Join(metricsErr, partyErr, setErr, zonesErr); err != nil {
		return nil, fmt.Errorf("allocator: new: %w", err)
	}
	a.loop = newLoop(name, opts, a.seed, sources{
		members: a.party, set: a.set, zones: a.zones, refresh: a.refresh, lifetime: (*session.Incarnation).Context,
	}, a.metrics, log)
	a.loop.publish, a.loop.ready, a.loop.manual = a.publish, a.setReady, a.manual
	return a, nil
}

// Run makes the process a member and keeps it one until ctx ends or Stop is
// called; then it leaves and returns nil. It may be called once. It returns
// within StopTimeout of that end, with [ErrStuck] when something it started had
// not returned by then. It ends by itself with
// [ErrNameTaken], and with an error of the session that is fatal. Whichever way
// it ends, the last snapshot is not joined and has the error in Err.
//
// The session must run for Run to come to anything, and is held until Run
// returns.
func (a *PartitionAllocator) Run(ctx context.Context) error {
	if !a.ran.CompareAndSwap(false, true) {
		return ErrRunTwice
	}
	defer close(a.done)
	select {
	case <-a.stop:
		close(a.ended)
		return nil
	default:
	}
	defer a.session.Hold()()
	defer a.metrics.gauges.show(a.state)()

	running := newGroup()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	life, giveUp := context.WithCancelCause(context.WithoutCancel(ctx)) // of callbacks: while we stop, too
	defer giveUp(nil)
	running.Go("stop", func() {
		select {
		case <-a.stop:
			cancel(ErrStopped)
		case <-ctx.Done():
		}
	})
	l := a.loop
	l.running = running
	running.Go("callback", func() { l.delivery.run(life, ctx) })

	err := l.run(ctx)
	deadline := time.After(a.opts.StopTimeout)
	cancel(ErrStopped)
	l.conclude(err)
	a.end = err
	close(a.ended)
	running.close()
	select {
	case <-running.idle:
	case <-deadline:
		giveUp(ErrStuck)
		return errors.Join(err, fmt.Errorf("%w after %v: %s", ErrStuck, a.opts.StopTimeout, running.names()))
	}
	return err
}

// Stop makes Run leave the group, and waits until it has returned or ctx ends;
// then the error wraps ctx's cause. Called within a callback it does not wait,
// because Run waits for the callback. Before Run it makes Run return at once.
func (a *PartitionAllocator) Stop(ctx context.Context) error {
	a.setStop()
	if !a.ran.Load() || a.loop.delivery.within() {
		return nil
	}
	return a.wait(ctx, "stop", a.done)
}

// wait waits for c.
func (a *PartitionAllocator) wait(ctx context.Context, op string, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("allocator: %s: %w", op, context.Cause(ctx))
	}
}

// Ready waits until the member has joined, its seed is in the set and a mapping
// was computed of them. It returns an error when ctx ends (what is wrong with
// the last snapshot is joined to it) or Run ends before.
func (a *PartitionAllocator) Ready(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-a.ended:
		return a.stopped("wait until ready")
	case <-ctx.Done():
		err := fmt.Errorf("allocator: wait until ready: %w", context.Cause(ctx))
		if s := a.Snapshot(); s != nil {
			err = errors.Join(err, s.Err)
		}
		return err
	}
}

func (a *PartitionAllocator) stopped(op string) error {
	return fmt.Errorf("allocator: %s: %w", op, errors.Join(ErrStopped, a.end))
}

// Leave removes this member's znode, so that the others know where each
// partition goes next, and waits for a snapshot that is not joined. Run goes on
// watching; the member does not join again.
func (a *PartitionAllocator) Leave(ctx context.Context) error {
	if err := a.party.Leave(ctx); err != nil {
		return fmt.Errorf("allocator: leave: %w", err)
	}
	for {
		p := a.latest.Load()
		if p.snapshot == nil || !p.snapshot.Joined {
			return nil
		}
		select {
		case <-p.newer:
		case <-a.ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("allocator: leave: %w", context.Cause(ctx))
		}
	}
}

// Rebalance reads members, set and zones again, computes the mapping even if nothing
// changed, and waits for its snapshot, or for ctx's end. The error is that of
// the computation.
func (a *PartitionAllocator) Rebalance(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case a.manual <- reply:
	case <-a.ended:
		return a.stopped("rebalance")
	case <-ctx.Done():
		return fmt.Errorf("allocator: rebalance: %w", context.Cause(ctx))
	}
	select {
	case err := <-reply:
		return err
	case <-a.ended:
		return a.stopped("rebalance")
	case <-ctx.Done():
		return fmt.Errorf("allocator: rebalance: %w", context.Cause(ctx))
	}
}

// Snapshot returns the newest snapshot, nil before the first. It never blocks.
func (a *PartitionAllocator) Snapshot() *Snapshot { return a.latest.Load().snapshot }

// Updates yields the newest snapshot and then each that follows. It may skip
// some when the loop body is slow, but always comes to the latest. It ends with
// ctx, and when Run has ended, after the last snapshot.
func (a *PartitionAllocator) Updates(ctx context.Context) iter.Seq[*Snapshot] {
	return func(yield func(*Snapshot) bool) {
		p := a.latest.Load()
		for {
			if p.snapshot != nil && (ctx.Err() != nil || !yield(p.snapshot)) {
				return
			}
			select {
			case <-p.newer:
			case <-ctx.Done():
				return
			case <-a.ended:
				if a.latest.Load() == p {
					return
				}
			}
			p = a.latest.Load()
		}
	}
}

// Allocation returns what this member owns, as topic and ids: kiel's shape. It
// is empty while the member is not joined, or its session not trusted. The map
// is the caller's.
func (a *PartitionAllocator) Allocation() map[string][]int32 {
	s := a.Snapshot()
	if s == nil || s.Incarnation == nil || !s.Incarnation.Trusted() {
		return map[string][]int32{}
	}
	return topics(s.mine)
}

// AddPartitions adds partitions, given as topic and ids, to the group's set. It needs the
// session to run, not the allocator. Names and ids are checked before anything is sent,
// and all faults are joined. Adding what is in the set is no error. What was added
// belongs to the seed from then on: while this member runs it is added again when the set
// is deleted or restored from a backup without it. A member makes one change to the set
// at a time: a call waits for earlier calls, and for the seed that is being added. Errors
// are sharedset's.
func (a *PartitionAllocator) AddPartitions(ctx context.Context, partitions map[string][]int32) error {
	all, err := items(partitions)
	if err == nil && len(all) > 0 {
		err = a.seed.inTurn(ctx, func() error {
			_, err := a.loop.src.set.Add(ctx, all...)
			if err == nil {
				a.seed.add(all)
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("allocator: add partitions: %w", err)
	}
	return nil
}

// RemovePartitions is the reverse of [PartitionAllocator.AddPartitions]. Removing what is
// not in the set is no error. A removed partition leaves the seeds of all members that
// run. A member that starts later with the partition in its seed adds it again. So does a
// running consumer that asks for its topic, within a minute: only what no living consumer
// asks for stays removed, which [PartitionAllocator.RemoveTopic] checks.
func (a *PartitionAllocator) RemovePartitions(ctx context.Context, partitions map[string][]int32) error {
	all, err := items(partitions)
	if err == nil && len(all) > 0 {
		err = a.seed.inTurn(ctx, func() error {
			_, err := a.loop.src.set.Remove(ctx, all...)
			if err == nil {
				a.seed.remove(all)
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("allocator: remove partitions: %w", err)
	}
	return nil
}

// items returns the items of a set for partitions, sorted.
func items(partitions map[string][]int32) ([]string, error) {
	var all []string
	var faults []error
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		if err := session.CheckTopic(topic); err != nil {
			faults = append(faults, err)
			continue
		}
		for _, id := range partitions[topic] {
			if id < 0 {
				faults = append(faults, fmt.Errorf("partition %d of topic %s: negative", id, topic))
				continue
			}
			all = append(all, allocfn.Partition{Topic: topic, ID: id}.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all), errors.Join(faults...)
}

func (a *PartitionAllocator) publish(s *Snapshot) {
	old := a.latest.Swap(&published{snapshot: s, newer: make(chan struct{})})
	close(old.newer)
}

// state is what the gauges show.
func (a *PartitionAllocator) state() state {
	s := state{rebalancing: a.loop.busy.Load(), snapshot: a.Snapshot(), session: a.session.Stats()}
	if ms := a.loop.applied.Load(); ms != 0 {
		s.lastRebalance = time.UnixMilli(ms)
	}
	members, set := a.party.View(), a.set.View()
	if members == nil || set == nil {
		return s
	}
	if v := a.zones.View(); v != nil {
		s.zoned = len(v.Zones)
	}
	s.members, s.partitions, s.lastRead = len(members.Members), len(set.Items), members.At
	if set.At.Before(members.At) {
		s.lastRead = set.At
	}
	return s
}

// Session returns the session given to New.
func (a *PartitionAllocator) Session() *session.Session { return a.session }

// Group returns the group's name.
func (a *PartitionAllocator) Group() string { return a.group }

// Name returns the member's name.
func (a *PartitionAllocator) Name() string { return a.name }

// GroupPath returns the path of the group's znode, /kiel/groups/<group>.
func (a *PartitionAllocator) GroupPath() string { return session.Join("kiel", "groups", a.group) }

// MembersPath returns the path under which members have their znodes.
func (a *PartitionAllocator) MembersPath() string { return session.Join(a.GroupPath(), "members") }

// PartitionsPath returns the path of the znode that holds the set.
func (a *PartitionAllocator) PartitionsPath() string {
	return session.Join(a.GroupPath(), "partitions")
}

// refresh makes party, sharedset and zones read again.
func (a *PartitionAllocator) refresh(ctx context.Context) refreshed {
	others := make(chan error, 2)
	a.loop.running.Go("refresh", func() { others <- a.set.Refresh(ctx) })
	a.loop.running.Go("refresh", func() { others <- a.zones.Refresh(ctx) })
	err := errors.Join(a.party.Refresh(ctx), <-others, <-others)
	return refreshed{a.party.View(), a.set.View(), a.zones.View(), err}
}
