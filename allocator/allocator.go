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

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// PartitionAllocator is one member of a group. It joins the group and computes which member is to own which partition. Its
// methods may be called from any goroutine.
type PartitionAllocator struct {
	session *session.Session
	group   string
	name    string
	opts    Options
	metrics *metrics
	shown   *promreg.Set // registers metrics, those of the set and those of the session while Run runs
	party   *party.Party
	set     *sharedset.Set
	zones   *zones.Zones
	loop    *loop
	seed    *seed

	ran    atomic.Bool
	latest *latest.Value[Snapshot] // the newest snapshot; nil before the first
	manual chan chan error         // calls of Rebalance, each with the channel for its result
	probes chan struct{}           // calls of Alive
	ready  chan struct{}           // closed when Ready may return
	stop   chan struct{}           // closed when Stop was called
	ended  chan struct{}           // closed when the last snapshot was published
	done   chan struct{}           // closed when Run returns

	setReady, setStop func() // close the channel, once
	end               error  // why Run ended; set before ended is closed
}

// New returns a member of the named group; name is the member's name. New checks its arguments and joins all faults. New sends
// nothing and starts no goroutine.
func New(s *session.Session, group, name string, opts Options) (*PartitionAllocator, error) {
	opts, err := opts.withDefaults()
	seeded, seedErr := items(opts.Seed)
	if seedErr != nil {
		seedErr = operr.New("", "option Seed", "", seedErr)
	}
	faults := errors.Join(kiel.CheckGroup(group), kiel.CheckMember(name), err, seedErr)
	if s == nil {
		faults = errors.Join(faults, errors.New("session is nil"))
	}
	if faults != nil {
		return nil, failed("", "", faults)
	}
	data, err := newRecord(opts).encode()
	if err != nil {
		return nil, failed("", "", err)
	}
	a := &PartitionAllocator{
		session: s, group: group, name: name, opts: opts,
		seed: newSeed(seeded), latest: latest.New[Snapshot](nil),
		manual: make(chan chan error), probes: make(chan struct{}),
		ready: make(chan struct{}), stop: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
	}
	a.setReady = sync.OnceFunc(func() { close(a.ready) })
	a.setStop = sync.OnceFunc(func() { close(a.stop) })
	log := opts.Logger.With("component", "allocator", "group", group, "member", name)

	var partyErr, setErr, zonesErr error
	a.metrics, a.shown = promreg.New(opts.Registerer, group, newMetrics)
	a.party, partyErr = party.New(s, a.MembersPath(), party.Options{
		Name: name, Data: data, Records: pathsOf(group).records, Info: newInfo(opts.StatusAddr),
		Singly: severalClusters(), Admit: admitTo(name, opts.Cluster), Static: staticOf(opts, group, name),
		Rejoin: opts.Rejoin, Logger: opts.Logger, Registerer: a.shown,
	})
	a.set, setErr = sharedset.New(s, a.PartitionsPath(), sharedset.Options{Identifier: name, Logger: opts.Logger, Registerer: a.shown})
	_, sessionErr := promreg.Register(a.shown, s.Collector())
	a.zones, zonesErr = zones.New(s, a.GroupPath(), zonesName)
	if err := errors.Join(partyErr, setErr, sessionErr, zonesErr, a.shown.Complete()); err != nil {
		return nil, failed("", "", err)
	}
	a.loop = newLoop(name, opts, a.seed, readers{
		members: a.party, set: a.set, zones: a.zones, refresh: a.refresh, lifetime: (*session.Incarnation).Context,
	}, a.metrics, log)
	a.loop.publish, a.loop.ready, a.loop.manual, a.loop.probes = a.latest.Store, a.setReady, a.manual, a.probes
	return a, nil
}

// Run makes the process a member and keeps it one until ctx ends or Stop is called; then the member leaves and Run returns nil.
// It returns within StopTimeout of that end, with [ErrStuck] if something that it started has not returned by then. Run ends by
// itself with [ErrNameTaken], [ErrOtherCluster], and when the session ends for good. Before this member has joined, a refusal by
// the servers ends Run, too, unless Options.Rejoin is set; after that refusals are reported, and tried again. Whichever way Run
// ends, the last snapshot is not joined and has the error in Err. A second call returns [kiel.ErrRunTwice].
//
// The session must run: without it the member does not join. Run keeps the session open until Run returns.
func (a *PartitionAllocator) Run(ctx context.Context) error {
	if !a.ran.CompareAndSwap(false, true) {
		return failed("", "", kiel.ErrRunTwice)
	}
	defer close(a.done)
	select {
	case <-a.stop:
		close(a.ended)
		return nil
	default:
	}
	defer a.session.KeepOpen()()
	hide, err := a.shown.Show()
	if err != nil {
		a.end = failed("run", "", err)
		a.loop.delivery.calls.Discard()
		a.loop.conclude(a.end)
		close(a.ended)
		return a.end
	}
	defer hide()
	began := time.Now()
	defer a.metrics.gauges.show(func() state { return a.state(began) })()

	running := newGoroutines()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	life, giveUp := context.WithCancelCause(context.WithoutCancel(ctx)) // for callbacks, which also run while Run stops
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
	l.delivery.life, l.delivery.stopping = life, ctx

	if err = l.run(ctx); err != nil {
		err = failed("", "", err)
	}
	deadline := time.After(a.opts.StopTimeout)
	cancel(ErrStopped)
	l.conclude(err)
	a.end = err
	close(a.ended)
	called := l.delivery.calls.Close()
	running.Go("callback", func() { <-called })
	running.close()
	select {
	case <-running.idle:
	case <-deadline:
		stuck := failed("", "", fmt.Errorf("%w after %v: %s", ErrStuck, a.opts.StopTimeout, running.names()))
		l.delivery.calls.Discard()
		giveUp(ErrStuck)
		return errors.Join(err, stuck)
	}
	return err
}

// Stop makes Run leave the group and waits until Run has returned. If ctx ends before, the error wraps ctx's cause. A callback
// calls Stop with its own context, or with one derived from it: then Stop does not wait, because Run waits for the callback. With
// another context Stop waits for the callback that calls it, until ctx ends or Run gives the callback up ([Options.StopTimeout]).
// When Stop is called before Run, Run returns at once.
func (a *PartitionAllocator) Stop(ctx context.Context) error {
	a.setStop()
	if !a.ran.Load() || a.loop.delivery.within(ctx) {
		return nil
	}
	return a.wait(ctx, "stop", a.done)
}

// wait waits until c is closed or ctx ends. op is the operation, for the error.
func (a *PartitionAllocator) wait(ctx context.Context, op string, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return failed(op, "", context.Cause(ctx))
	}
}

// Ready waits until the member has joined, the set has its seed, and a mapping was computed from members and set. It returns an
// error if ctx or Run ends before; when ctx ends, the error of the last snapshot is joined to it.
func (a *PartitionAllocator) Ready(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-a.ended:
		return a.stopped("wait until ready")
	case <-ctx.Done():
		last := a.refusal()
		if s := a.Snapshot(); s != nil {
			last = s.Err
		}
		return failed("wait until ready", "", errors.Join(context.Cause(ctx), last))
	}
}

// stopped returns the error of an operation that the end of Run has ended.
func (a *PartitionAllocator) stopped(op string) error {
	if a.end == nil || errors.Is(a.end, ErrStopped) {
		return failed(op, "", ErrStopped)
	}
	return failed(op, "", operr.Because(ErrStopped, a.end))
}

// Leave deletes this member's znode, so that all members compute which member gets each of its partitions, and waits for a
// snapshot that is not joined. Run goes on watching; the member does not join again, whatever Leave returns. Leave returns nil at
// once before Run, and when Run ends. Its error is the session's, or wraps the cause of ctx.
func (a *PartitionAllocator) Leave(ctx context.Context) error {
	if err := a.party.Leave(ctx); err != nil {
		return failed("leave", "", err)
	}
	for {
		s, newer := a.latest.Watch()
		if s == nil || !s.Joined {
			return nil
		}
		select {
		case <-newer:
		case <-a.ended:
			return nil
		case <-ctx.Done():
			return failed("leave", "", context.Cause(ctx))
		}
	}
}

// Rebalance reads members, set and zones again, computes the mapping even if nothing has changed, and waits for the snapshot or
// for the end of ctx. The error is that of the computation; it wraps the cause of ctx, or [ErrStopped] when Run has ended.
func (a *PartitionAllocator) Rebalance(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case a.manual <- reply:
	case <-a.ended:
		return a.stopped("rebalance")
	case <-ctx.Done():
		return failed("rebalance", "", context.Cause(ctx))
	}
	select {
	case err := <-reply:
		if err != nil {
			return failed("rebalance", "", err)
		}
		return nil
	case <-a.ended:
		return a.stopped("rebalance")
	case <-ctx.Done():
		return failed("rebalance", "", context.Cause(ctx))
	}
}

// Snapshot returns the newest snapshot, nil before the first. It never blocks.
func (a *PartitionAllocator) Snapshot() *Snapshot { return a.latest.Load() }

// Updates yields the newest snapshot and then each that follows. A slow loop body misses some snapshots, but always gets the
// latest. Updates ends with ctx, or after the last snapshot when Run has ended.
func (a *PartitionAllocator) Updates(ctx context.Context) iter.Seq[*Snapshot] {
	return a.latest.Updates(ctx, a.ended)
}

// Allocation returns the partitions that the mapping gives to this member, as topic and ids, which is kiel's form. The map is
// empty while the member has not joined or its session is not trusted. The map is the caller's.
func (a *PartitionAllocator) Allocation() map[string][]int32 {
	s := a.Snapshot()
	if s == nil || s.Incarnation == nil || !s.Incarnation.Trusted() {
		return map[string][]int32{}
	}
	return topics(s.mine)
}

// AddPartitions adds partitions, given as topic and ids, to the group's set. It needs the session to run, not the allocator.
// Names and ids are checked before anything is sent, and all faults are joined. Adding what is in the set is no error. What was
// added belongs to the seed from then on: while this member runs it is added again when the set is deleted or restored from a
// backup without it. A member makes one change to the set at a time: a call waits for earlier calls, and for the seed that is
// being added. It blocks until the set is written, or ctx ends. Errors are [kiel.ErrInvalidName], [ErrSetUnreadable],
// [ErrSetTooLarge] and the session's; after [session.ErrUncertain] nobody knows whether the set was changed, and the call may be
// made again. A recipe.BlockedError says that the set's lock could not be acquired.
func (a *PartitionAllocator) AddPartitions(ctx context.Context, partitions map[string][]int32) error {
	all, err := items(partitions)
	if err != nil {
		return failed("add partitions", "", err)
	}
	if len(all) == 0 {
		return nil
	}
	return a.seed.inTurn(ctx, "add partitions", "", func() error {
		_, err := a.loop.readers.set.Add(ctx, all...)
		if err == nil {
			a.seed.add(all, a.loop.readers.set.Changed())
		}
		return err
	})
}

// RemovePartitions removes partitions from the group's set, as [PartitionAllocator.AddPartitions] adds them. Removing what is not
// in the set is no error. A removed partition leaves the seeds of all members that run. A member that starts later with the
// partition in its seed adds it again. So does a running consumer that asks for the topic, within a minute: only what no living
// consumer asks for stays removed, which [PartitionAllocator.RemoveTopic] checks.
func (a *PartitionAllocator) RemovePartitions(ctx context.Context, partitions map[string][]int32) error {
	all, err := items(partitions)
	if err != nil {
		return failed("remove partitions", "", err)
	}
	if len(all) == 0 {
		return nil
	}
	return a.removeItems(ctx, "remove partitions", all)
}

// RemoveItems removes items from the group's set as they are written there, such as those that are no partitions
// ([kiel.ErrInvalidPartition]). Else it is like [PartitionAllocator.RemovePartitions].
func (a *PartitionAllocator) RemoveItems(ctx context.Context, items ...string) error {
	if len(items) == 0 {
		return nil
	}
	return a.removeItems(ctx, "remove items", slices.Sorted(slices.Values(items)))
}

func (a *PartitionAllocator) removeItems(ctx context.Context, op string, items []string) error {
	return a.seed.inTurn(ctx, op, "", func() error {
		_, err := a.loop.readers.set.Remove(ctx, items...)
		if err == nil {
			a.seed.remove(items)
		}
		return err
	})
}

// items returns the set's items for partitions, sorted, or all faults of partitions.
func items(partitions map[string][]int32) ([]string, error) {
	var all []string
	var faults []error
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		if err := kiel.CheckTopic(topic); err != nil {
			faults = append(faults, err)
			continue
		}
		for _, id := range partitions[topic] {
			if id < 0 {
				faults = append(faults, fmt.Errorf("partition %d of topic %s is less than 0", id, topic))
				continue
			}
			all = append(all, kiel.Partition{Topic: topic, ID: id}.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all), errors.Join(faults...)
}

// state returns the values of the gauges. began is when Run was called.
func (a *PartitionAllocator) state(began time.Time) state {
	s := state{rebalancing: a.loop.busy.Load(), snapshot: a.Snapshot(), confirmed: began}
	m := newMapping(allocfn.Input{}, "", nil)
	if s.snapshot != nil {
		m = s.snapshot.mapping
		s.unwanted = m.leftOut
	}
	s.disagreements = a.disagreements(a.read(m))
	members, set := a.party.View(), a.set.View()
	if members == nil || members.Incarnation == nil || set == nil {
		return s
	}
	if v := a.zones.View(); v != nil {
		s.zoned = len(v.Zones)
	}
	s.members, s.partitions, s.confirmed = len(members.Members), len(set.Items), members.At
	if set.At.Before(members.At) {
		s.confirmed = set.At
	}
	return s
}

// Session returns the session given to New.
func (a *PartitionAllocator) Session() *session.Session { return a.session }

// Group returns the group's name.
func (a *PartitionAllocator) Group() string { return a.group }

// Member returns the member's name.
func (a *PartitionAllocator) Member() string { return a.name }

// GroupPath returns the path of the group's znode, /kiel/groups/<group>, with the group's name as [kiel.GroupZnode] writes it.
func (a *PartitionAllocator) GroupPath() string { return pathsOf(a.group).group }

// MembersPath returns the path under which members have their znodes.
func (a *PartitionAllocator) MembersPath() string { return pathsOf(a.group).members }

// PartitionsPath returns the path of the znode that holds the set.
func (a *PartitionAllocator) PartitionsPath() string { return pathsOf(a.group).set }

// paths has the paths of a group's znodes.
type paths struct{ group, members, records, set, zones, static string }

func pathsOf(group string) paths {
	root := session.Join("kiel", "groups", kiel.GroupZnode(group))
	return paths{
		group: root, members: session.Join(root, "members"), records: session.Join(root, "records"),
		set: session.Join(root, "partitions"), zones: session.Join(root, zonesName),
		static: session.Join(root, "static"),
	}
}

// refresh makes party, sharedset and zones read again, and returns their views.
func (a *PartitionAllocator) refresh(ctx context.Context) refreshed {
	others := make(chan error, 2)
	a.loop.running.Go("refresh", func() { others <- a.set.Refresh(ctx) })
	a.loop.running.Go("refresh", func() { others <- a.zones.Refresh(ctx) })
	err := errors.Join(a.party.Refresh(ctx), <-others, <-others)
	return refreshed{a.party.View(), a.set.View(), a.zones.View(), err}
}
