package allocator

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// memberReader, setReader and zoneReader are what the loop, AddPartitions and RemovePartitions need of party, sharedset and
// zones.
type memberReader interface {
	Run(ctx context.Context) error
	Updates(ctx context.Context) iter.Seq[*party.View]
}

type setReader interface {
	Run(ctx context.Context) error
	Updates(ctx context.Context) iter.Seq[*sharedset.View]
	Add(ctx context.Context, items ...string) (int, error)
	Remove(ctx context.Context, items ...string) (int, error)
	Changed() *sharedset.View
}

type zoneReader interface {
	Run(ctx context.Context) error
	Updates(ctx context.Context) iter.Seq[*zones.View]
}

// readers are what the loop reads from.
type readers struct {
	members  memberReader
	set      setReader
	zones    zoneReader
	refresh  func(ctx context.Context) refreshed            // makes all three read again, and returns when they have
	lifetime func(inc *session.Incarnation) context.Context // returns the context that ends with trust in the incarnation
}

// refreshed is the result of a refresh.
type refreshed struct {
	members *party.View
	set     *sharedset.View
	zones   *zones.View
	err     error
}

// loop is what Run's goroutine, the state goroutine, works on. It merges the views of party, sharedset and zones, starts the
// computation of mappings, and publishes snapshots. Everything that takes time (reading, seeding, the allocation function,
// callbacks) runs on other goroutines, which send their results.
type loop struct {
	name     string
	opts     Options
	readers  readers
	log      *slog.Logger
	errs     *errlog.Log
	metrics  *metrics
	delivery *delivery
	publish  func(*Snapshot)
	ready    func() // makes Ready return
	manual   <-chan chan error
	probes   <-chan struct{}           // Alive sends to it; a loop that runs receives
	busy     atomic.Bool               // whether a change waits or a job runs; for the gauges
	history  atomic.Pointer[[]*change] // the changes of the last mappings, the newest first
	running  *goroutines               // all goroutines that the loop starts

	memberViews chan *party.View
	setViews    chan *sharedset.View
	zoneViews   chan *zones.View
	ended       chan error // what Run of a reader returned
	results     chan result
	seedings    chan seeding
	refreshes   chan refreshed

	// The newest views, and the changes that wait to be acted on.
	members   *party.View
	set       *sharedset.View
	zones     *zones.View
	changes   int // the number of all changes: a job that began with fewer may be stale
	coalescer coalescer

	work   work
	seeder seeder
	calls  calls

	// The last snapshot.
	last       *Snapshot
	wasReady   bool
	good       *mapping          // the last mapping that was computed; never nil
	lost       <-chan struct{}   // closed when trust in last's incarnation ends; nil once the loop knows
	computeErr error             // why good is not the mapping of the newest views
	itemsErr   error             // items that are allocated to nobody
	reported   map[string]string // the text of the error that was reported last, by kind
	unwanted   []string          // the topics that no member asked for when this member last got a mapping; sorted
}

// work is the computation of mappings.
type work struct {
	job     *job             // the job that runs, or nil
	inputs  *inputs          // the inputs of the last job that had them; never nil
	overdue <-chan time.Time // fires when the job is late
	missed  bool             // whether changes were due behind a late job
}

// calls are the calls of Rebalance, by their progress.
type calls struct {
	asked     []chan error // no refresh has begun for them
	rereading []chan error // wait for the refresh; not nil while it runs
	reread    []chan error // wait for a job
	fresh     bool         // whether Rebalance was called since the last job began
}

func newLoop(name string, opts Options, seed *seed, from readers, m *metrics, log *slog.Logger) *loop {
	errs := errlog.New(log)
	return &loop{
		name: name, opts: opts, readers: from, log: log, errs: errs, metrics: m,
		delivery:    newDelivery(opts, from.lifetime, log, errs, m),
		memberViews: make(chan *party.View), setViews: make(chan *sharedset.View), zoneViews: make(chan *zones.View),
		ended: make(chan error, 3), results: make(chan result), seedings: make(chan seeding), refreshes: make(chan refreshed),
		coalescer: coalescer{quiet: opts.QuietPeriod, max: opts.MaxDelay},
		work:      work{inputs: &inputs{}},
		seeder:    seeder{seed: seed},
		good:      newMapping(allocfn.Input{}, "", nil),
		reported:  make(map[string]string),
	}
}

// run is the body of Run. It returns nil when ctx ends, else the error of the reader that has ended.
func (l *loop) run(ctx context.Context) error {
	l.start(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.step(ctx, timer)
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.ended:
			if ctx.Err() != nil {
				return nil
			}
			return cmp.Or(err, ErrStopped)
		case v := <-l.memberViews:
			l.onMembers(v)
		case v := <-l.setViews:
			l.onSet(v)
		case v := <-l.zoneViews:
			l.onZones(v)
		case <-l.lost:
			l.lost = nil
			l.republish(false)
		case <-timer.C:
		case r := <-l.results:
			l.onResult(r)
		case <-l.work.overdue:
			l.onOverdue()
		case s := <-l.seedings:
			l.onSeeding(s)
		case <-l.probes:
		case reply := <-l.manual:
			l.calls.asked = append(l.calls.asked, reply)
		case r := <-l.refreshes:
			l.onRefreshed(r)
		}
	}
}

// start runs the readers and forwards their views.
func (l *loop) start(ctx context.Context) {
	l.running.Go("membership", func() { l.ended <- l.readers.members.Run(ctx) })
	l.running.Go("set", func() { l.ended <- l.readers.set.Run(ctx) })
	l.running.Go("zones", func() { l.ended <- l.readers.zones.Run(ctx) })
	l.running.Go("membership", func() { forward(ctx, l.readers.members.Updates(ctx), l.memberViews) })
	l.running.Go("set", func() { forward(ctx, l.readers.set.Updates(ctx), l.setViews) })
	l.running.Go("zones", func() { forward(ctx, l.readers.zones.Updates(ctx), l.zoneViews) })
}

func forward[V any](ctx context.Context, updates iter.Seq[V], to chan<- V) {
	for v := range updates {
		select {
		case to <- v:
		case <-ctx.Done():
			return
		}
	}
}

// step starts everything that is due, and sets the timer for what is due later.
func (l *loop) step(ctx context.Context, timer *time.Timer) {
	l.seedWhenNeeded(ctx)
	if len(l.calls.asked) > 0 && l.calls.rereading == nil {
		l.calls.rereading, l.calls.asked = l.calls.asked, nil
		l.running.Go("refresh", func() { send(ctx, l.refreshes, l.readers.refresh(ctx)) })
	}
	due, waiting := l.coalescer.due()
	// A view of one incarnation is never combined with a view of another: what was true under the first may be false under the
	// second. The later view is on its way; until it comes the last snapshot stays, and is not joined.
	if waiting && l.coherent() && (l.work.job == nil || l.work.job.late) {
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
		} else if l.work.job == nil {
			l.compute(ctx)
		} else {
			l.passBy()
		}
	}
	l.busy.Store(l.work.job != nil || !l.coalescer.first.IsZero())
}

func send[V any](ctx context.Context, to chan<- V, v V) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}

// coherent reports whether the views of members, set and zones are from one incarnation.
func (l *loop) coherent() bool {
	return l.paired() && l.zones != nil && l.members.Incarnation == l.zones.Incarnation
}

// paired reports whether the views of members and set are from one incarnation.
func (l *loop) paired() bool {
	return l.members != nil && l.set != nil && l.members.Incarnation == l.set.Incarnation
}

// conclude publishes the last snapshot, which is not joined. err is why Run ends, nil if ctx or Stop ends it.
func (l *loop) conclude(err error) {
	switch {
	case l.last != nil:
		l.finish(publication{inc: l.last.Incarnation, end: err})
	case err != nil:
		l.finish(publication{end: err})
	}
}

// change records a change. The loop acts on it at once if now is true, else soon.
func (l *loop) change(now bool) {
	if l.merge(now) {
		l.metrics.coalesced.Inc()
	}
}

// renew records a view of a new incarnation. The loop acts on it at once. There are three, of members, set and zones, so the
// metric does not count them as merged.
func (l *loop) renew() { l.merge(true) }

// merge adds a change to those that wait, and reports whether there were some.
func (l *loop) merge(now bool) bool {
	l.changes++
	merged := l.coalescer.change(time.Now())
	l.coalescer.urgent = l.coalescer.urgent || now
	return merged
}

func (l *loop) onMembers(v *party.View) {
	if v.Incarnation == nil && v.Err != nil { // nothing was read yet
		l.report(kindMembership, v.Err)
		return
	}
	old := l.members
	if old != nil && v.Version < old.Version {
		return // overtaken by a refresh
	}
	l.members = v
	switch {
	case old == nil || old.Incarnation != v.Incarnation:
		l.renew()
	case old.Joined && !v.Joined:
		// Whatever the computation returns, this member's share is empty from now on.
		l.republish(false)
		l.change(true)
	case old.Joined != v.Joined:
		l.change(true)
	case !slices.EqualFunc(old.Members, v.Members, sameMember):
		l.change(false)
	case text(old.NameHeld) != text(v.NameHeld), text(old.Err) != text(v.Err):
		l.republish(true)
	}
}

func (l *loop) onSet(v *sharedset.View) {
	old := l.set
	if old != nil && v.Version < old.Version {
		return
	}
	hadSeed := old != nil && l.seeder.done(l.set)
	l.set = v
	if v.Err == nil {
		l.compareSeed(v)
	}
	switch {
	case old == nil || old.Incarnation != v.Incarnation:
		l.renew()
	case old.Exists && !old.SameZnode(v):
		// The znode was deleted, and perhaps created again. The members add their seeds in a moment; one rebalance is better than
		// two, of which the first takes partitions away. How long the seeds take depends on the links and the servers. This
		// member's own may be back before another's, whose partitions it must not divide away until then.
		l.coalescer.disturb(time.Now())
		l.coalescer.deleted(old.Items)
		l.coalescer.holds(v.Items)
		l.change(false)
	case !slices.Equal(old.Items, v.Items):
		l.coalescer.holds(v.Items)
		l.change(!l.wasReady && l.seeder.done(l.set))
	case text(old.Err) != text(v.Err):
		l.republish(true)
		if v.Err == nil && !l.wasReady && l.seeder.done(l.set) {
			l.change(true) // no item has changed, but only now Ready can return
		}
	case !hadSeed && !l.wasReady && l.seeder.done(l.set):
		l.change(true) // likewise: what the seed has and the set lacks was removed
	}
}

func (l *loop) onZones(v *zones.View) {
	old := l.zones
	if old != nil && v.Version < old.Version {
		return
	}
	l.zones = v
	switch {
	case old == nil || old.Incarnation != v.Incarnation:
		l.renew()
	case !maps.Equal(old.Zones, v.Zones):
		l.change(false)
	case text(old.Err) != text(v.Err):
		l.republish(true)
	}
}

func (l *loop) onRefreshed(r refreshed) {
	if r.err != nil {
		answer(l.calls.rereading, r.err)
	} else {
		l.onMembers(r.members) // the same views may be forwarded later
		l.onSet(r.set)
		l.onZones(r.zones)
		l.calls.reread = append(l.calls.reread, l.calls.rereading...)
		l.calls.fresh = true
		l.change(true)
	}
	l.calls.rereading = nil
}

func answer(calls []chan error, err error) {
	for _, c := range calls {
		c <- err // has room for one
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
