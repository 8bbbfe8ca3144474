package allocator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// feed is a level-triggered feed of views.
type feed[V any] struct {
	mu   sync.Mutex
	view V
	some bool
	next chan struct{}
}

func newFeed[V any]() *feed[V] { return &feed[V]{next: make(chan struct{})} }

func (f *feed[V]) put(v V) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view, f.some = v, true
	close(f.next)
	f.next = make(chan struct{})
}

func (f *feed[V]) Updates(ctx context.Context) iter.Seq[V] {
	return func(yield func(V) bool) {
		for {
			f.mu.Lock()
			v, some, next := f.view, f.some, f.next
			f.mu.Unlock()
			if some && !yield(v) {
				return
			}
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
		}
	}
}

// fakeMembers and fakeSet stand in for party and sharedset.
type fakeMembers struct {
	*feed[*party.View]
	end chan error
}

func (f *fakeMembers) Run(ctx context.Context) error { return untilDone(ctx, f.end) }

type fakeSet struct {
	*feed[*sharedset.View]
	end    chan error
	add    func(items ...string) error
	remove func(items ...string) error
	left   *sharedset.View // what Changed returns
}

func (f *fakeSet) Run(ctx context.Context) error { return untilDone(ctx, f.end) }

func (f *fakeSet) Add(_ context.Context, items ...string) (int, error) {
	return len(items), f.add(items...)
}

func (f *fakeSet) Remove(_ context.Context, items ...string) (int, error) {
	return len(items), f.remove(items...)
}

func (f *fakeSet) Changed() *sharedset.View { return f.left }

func succeed(...string) error { return nil }

// fakeZones stands in for zones.
type fakeZones struct {
	*feed[*zones.View]
	end chan error
}

func (f *fakeZones) Run(ctx context.Context) error { return untilDone(ctx, f.end) }

func untilDone(ctx context.Context, end chan error) error {
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
		return nil
	}
}

// rig is an allocator named b on fake readers, in a synctest bubble.
type rig struct {
	*testing.T
	*PartitionAllocator
	members *fakeMembers
	set     *fakeSet
	zones   *fakeZones
	inc     *session.Incarnation
	lives   map[*session.Incarnation]context.Context
	lose    context.CancelCauseFunc
	version uint64
	czxid   int64 // of the set
	writes  int32 // of the set
	ran     chan error
	running bool
	base    context.Context // of Run
	late    bool            // zones come when the test shows them

	mu         sync.Mutex
	rebalances []Rebalance
	errs       []error
	snapshots  []*Snapshot
}

// newRig makes an allocator; change may set options, and replaces the callbacks if it likes.
func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	noerr.Must(t, err)
	r := &rig{
		T: t, base: t.Context(), members: &fakeMembers{newFeed[*party.View](), make(chan error)},
		set:   &fakeSet{newFeed[*sharedset.View](), make(chan error), succeed, succeed, &sharedset.View{}},
		zones: &fakeZones{newFeed[*zones.View](), make(chan error)},
		czxid: 1, lives: make(map[*session.Incarnation]context.Context), ran: make(chan error, 1),
	}
	opts := Options{
		OnRebalance: func(_ context.Context, b Rebalance) { r.locked(func() { r.rebalances = append(r.rebalances, b) }) },
		OnError:     func(_ context.Context, err error) { r.locked(func() { r.errs = append(r.errs, err) }) },
	}
	if change != nil {
		change(&opts)
	}
	r.PartitionAllocator, err = New(s, "g", "b", opts)
	noerr.Must(t, err)
	r.loop.readers = readers{
		members: r.members, set: r.set, zones: r.zones, refresh: func(context.Context) refreshed {
			return refreshed{r.members.view, r.set.view, r.zones.view, nil}
		},
		lifetime: func(inc *session.Incarnation) context.Context {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.lives[inc]
		},
	}
	r.loop.delivery.lifetime = r.loop.readers.lifetime
	publish := r.loop.publish
	r.loop.publish = func(s *Snapshot) {
		r.locked(func() { r.snapshots = append(r.snapshots, s) })
		publish(s)
	}
	r.incarnate()
	return r
}

// inRig runs a test in a bubble, with an allocator that runs until the test has ended.
func inRig(t *testing.T, change func(*Options), test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change)
		r.run()
		test(r)
		r.stop()
	})
}

func (r *rig) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// incarnate begins another incarnation, which the views that follow are of.
func (r *rig) incarnate() {
	r.inc = new(session.Incarnation)
	life, lose := context.WithCancelCause(r.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose, r.lives[r.inc] = lose, life
}

// begin runs the allocator: there is a set, and then it joins, alone in its group.
func (r *rig) begin(items ...string) {
	r.run()
	r.partitions(items...)
	r.join("b")
}

// run starts Run, unless it runs already, and ends it with the test.
func (r *rig) run() {
	if r.running {
		return
	}
	r.running = true
	ctx, cancel := context.WithCancel(r.base)
	go func() {
		defer close(r.ran)
		r.ran <- r.PartitionAllocator.Run(ctx)
	}()
	r.Cleanup(cancel)
}

// stop stops and returns what Run returned, if nobody has received that.
func (r *rig) stop() error {
	r.Helper()
	noerr.Must(r, r.Stop(r.Context()))
	return <-r.ran
}

// join shows the named members; b among them is us, if joined.
func (r *rig) join(names ...string) {
	v := &party.View{Incarnation: r.inc, Joined: slices.Contains(names, "b"), At: time.Now()}
	slices.Sort(names)
	for _, name := range names {
		v.Members = append(v.Members, party.Member{Name: name, Czxid: 1})
	}
	r.show(v)
}

func (r *rig) show(v *party.View) {
	r.zonesFollow()
	r.version++
	v.Version = r.version
	r.members.put(v)
	synctest.Wait()
}

// partitions shows a set that was written once more.
func (r *rig) partitions(items ...string) {
	r.writes++
	r.restored(r.writes, items...)
}

// restored shows a set that was written so often.
func (r *rig) restored(writes int32, items ...string) {
	slices.Sort(items)
	r.writes = writes
	r.showSet(&sharedset.View{Items: items, Exists: true, Czxid: r.czxid, DataVersion: writes})
}

func (r *rig) showSet(v *sharedset.View) {
	r.zonesFollow()
	r.version++
	v.Version, v.Incarnation, v.At = r.version, r.inc, time.Now()
	r.set.put(v)
	synctest.Wait()
}

// zonesFollow shows no zones, unless there are some of the incarnation.
func (r *rig) zonesFollow() {
	if v := r.zones.view; !r.late && (v == nil || v.Incarnation != r.inc) {
		r.showZones(&zones.View{})
	}
}

func (r *rig) showZones(v *zones.View) {
	r.version++
	v.Version, v.Incarnation, v.At = r.version, r.inc, time.Now()
	r.zones.put(v)
	synctest.Wait()
}

// want fails unless the newest snapshot gives us the named partitions, by a mapping with this reason.
func (r *rig) want(reason status.Code, mine string) *Snapshot {
	r.Helper()
	synctest.Wait()
	s := r.Snapshot()
	if s == nil {
		r.Fatal("no snapshot")
	}
	if got := list(s.Mine()); got != mine || s.Reason.Code != reason {
		r.Fatalf("got %q by %s (joined %t, err %v), want %q by %s", got, s.Reason, s.Joined, s.Err, mine, reason)
	}
	return s
}

// sleep lets virtual time pass.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) published() (n int) {
	synctest.Wait()
	r.locked(func() { n = len(r.snapshots) })
	return n
}

// told returns what OnRebalance was told, as "+added -removed", and forgets it.
func (r *rig) told() string {
	synctest.Wait()
	var all []string
	r.locked(func() {
		for _, b := range r.rebalances {
			all = append(all, diff(b))
		}
		r.rebalances = nil
	})
	return strings.Join(all, ", ")
}

func diff(b Rebalance) string {
	return strings.TrimSpace(fmt.Sprintf("+%s -%s", list(b.Added), list(b.Removed)))
}

// failed returns what OnError was told, and forgets it.
func (r *rig) failed() error {
	synctest.Wait()
	var err error
	r.locked(func() {
		err = errors.Join(r.errs...)
		r.errs = nil
	})
	return err
}

func list(ps []kiel.Partition) string {
	var items []string
	for _, p := range ps {
		items = append(items, p.String())
	}
	return strings.Join(items, " ")
}
