package kazoo_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// The functions below say what the cases do with each recipe.

type newLock func(*session.Session, string, lock.Options) (*lock.Lock, error)

func (w *world) lockBy(kind newLock, c *client, opts lock.Options) *lock.Lock {
	w.Helper()
	return must[*lock.Lock](w)(kind(c.Session, w.path, opts))
}

func (w *world) lock(c *client, identifier string) *lock.Lock {
	w.Helper()
	return w.lockBy(lock.New, c, lock.Options{Identifier: identifier})
}

func (w *world) tryLock(l *lock.Lock) (*lock.Held, bool) {
	w.Helper()
	return try(w, l.TryAcquire, lock.ErrNotAcquired)
}

// contenders returns their identifiers, in their order.
func (w *world) contenders(l interface {
	Contenders(ctx context.Context) ([]lock.Contender, error)
},
) []string {
	w.Helper()
	names := []string{}
	for _, c := range must[[]lock.Contender](w)(l.Contenders(w.Context())) {
		names = append(names, c.Identifier)
	}
	return names
}

func (w *world) wantContenders(l *lock.Lock, want ...string) {
	w.Helper()
	w.wantList("contenders", w.contenders(l), want...)
}

// untilContenders waits until so many contend.
func (w *world) untilContenders(n int, l *lock.Lock) []string {
	w.Helper()
	var list []string
	w.until(fmt.Sprintf("%d contenders", n), func() bool {
		list = w.contenders(l)
		return len(list) == n
	})
	return list
}

func (w *world) semaphore(c *client, opts semaphore.Options) *semaphore.Semaphore {
	w.Helper()
	return must[*semaphore.Semaphore](w)(semaphore.New(c.Session, w.path, opts))
}

func (w *world) trySemaphore(s *semaphore.Semaphore) (*semaphore.Held, bool) {
	w.Helper()
	return try(w, s.TryAcquire, semaphore.ErrNotAcquired)
}

// innerLock is the directory in which those stand who want a lease.
func (w *world) innerLock() string { return w.path + "-__lock__" }

// wantHolders checks who has a lease, whatever their order.
func (w *world) wantHolders(s *semaphore.Semaphore, want ...string) {
	w.Helper()
	var names []string
	for _, h := range must[[]semaphore.LeaseHolder](w)(s.LeaseHolders(w.Context())) {
		names = append(names, h.Identifier)
	}
	slices.Sort(names)
	w.wantList("holders", names, want...)
}

func (w *world) election(c *client, identifier string) *election.Election {
	w.Helper()
	return must[*election.Election](w)(election.New(c.Session, w.path, election.Options{Identifier: identifier}))
}

// unit is one of kazoo's seconds: holds here end by the real clock, too, and no case shall hang on that.
const unit = 10 * time.Second

// mockClock is kazoo's: it stands still.
type mockClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *mockClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *mockClock) forward(units int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Duration(units) * unit)
}

// putter is what both kinds of queue can do.
type putter interface {
	Put(ctx context.Context, value []byte, priority int) (string, error)
	PutAll(ctx context.Context, values [][]byte, priority int) ([]string, error)
	Len(ctx context.Context) (int, error)
}

func (w *world) queue() *queue.Queue {
	w.Helper()
	return w.queueOf(w.client("client"))
}

func (w *world) queueOf(c *client) *queue.Queue {
	w.Helper()
	return must[*queue.Queue](w)(queue.New(c.Session, w.path, queue.Options{}))
}

func (w *world) lockingQueue(c *client) *queue.LockingQueue {
	w.Helper()
	return must[*queue.LockingQueue](w)(queue.NewLocking(c.Session, w.path, queue.Options{}))
}

func (w *world) put(q putter, value string, priority int) {
	w.Helper()
	must[string](w)(q.Put(w.Context(), []byte(value), priority))
}

func (w *world) wantLen(q putter, want int) {
	w.Helper()
	if n := must[int](w)(q.Len(w.Context())); n != want {
		w.Errorf("length %d, want %d", n, want)
	}
}

// wantValue takes one off a Queue.
func (w *world) wantValue(q *queue.Queue, want string) {
	w.Helper()
	if got := string(must[[]byte](w)(q.TryGet(w.Context()))); got != want {
		w.Errorf("got %q, want %q", got, want)
	}
}

// take gets an entry of a LockingQueue.
func (w *world) take(q *queue.LockingQueue, want string) *queue.Held {
	w.Helper()
	h := acquire(w, q.Get)
	if got := string(h.Value()); got != want {
		w.Errorf("got %q, want %q", got, want)
	}
	return h
}

func (w *world) consume(h *queue.Held) {
	w.Helper()
	w.must(h.Consume(w.Context()))
}

// wantHolds asks the server whether an entry is held.
func (w *world) wantHolds(h *queue.Held, want bool) {
	w.Helper()
	if got := must[bool](w)(h.Holds(w.Context())); got != want {
		w.Errorf("holds: %v, want %v", got, want)
	}
}

func (w *world) barrier(c *client) *barrier.Barrier {
	w.Helper()
	return must[*barrier.Barrier](w)(barrier.New(c.Session, w.path, barrier.Options{}))
}

func (w *world) double(c *client, path string, clients int) *barrier.DoubleBarrier {
	w.Helper()
	return must[*barrier.DoubleBarrier](w)(barrier.NewDouble(c.Session, path, clients, barrier.DoubleOptions{}))
}

func (w *world) enter(d *barrier.DoubleBarrier) *call[*barrier.Member] {
	return later(w, func() (*barrier.Member, error) { return d.Enter(w.Context()) })
}

func (w *world) leaveBarrier(m *barrier.Member) *call[struct{}] {
	return later(w, func() (struct{}, error) { return struct{}{}, m.Leave(w.Context()) })
}

// wantUnset checks that a znode's data was never set: that would use up the only watch of a Python process that waits for the
// znode's end, or for ready.
func (w *world) wantUnset(path string) {
	w.Helper()
	there, stat, err := w.looks().Exists(w.Context(), path)
	w.must(err)
	if !there || stat.Version != 0 || stat.Mzxid != stat.Czxid {
		w.Errorf("%s stands: %v, %+v", path, there, stat)
	}
}

// crowd is what both kinds of party can do.
type crowd interface {
	Node() string
	Join(ctx context.Context) error
	Leave(ctx context.Context) error
	IsMember() bool
	Members(ctx context.Context) ([]string, error)
	WaitForMembers(ctx context.Context, n int) ([]string, error)
}

func (w *world) party(c *client, identifier string) crowd {
	w.Helper()
	opts := party.KazooOptions{Identifier: identifier}
	return must[*party.KazooParty](w)(party.NewKazooParty(c.Session, w.path, opts))
}

func (w *world) shallowParty(c *client, identifier string) crowd {
	w.Helper()
	opts := party.KazooOptions{Identifier: identifier}
	return must[*party.ShallowParty](w)(party.NewShallowParty(c.Session, w.path, opts))
}

func (w *world) join(p crowd) {
	w.Helper()
	w.must(p.Join(w.Context()))
	if !p.IsMember() {
		w.Error("no member after joining")
	}
}

func (w *world) leave(p crowd) {
	w.Helper()
	w.must(p.Leave(w.Context()))
	if p.IsMember() {
		w.Error("a member after leaving")
	}
}

func (w *world) members(p crowd) []string {
	w.Helper()
	return must[[]string](w)(p.Members(w.Context()))
}

func (w *world) wantMembers(p crowd, want ...string) {
	w.Helper()
	w.wantList("members", w.members(p), want...)
}

// counting is a counter of a case.
type counting[V int64 | int32 | float64] struct {
	*counter.Counter[V]
	w *world
}

func (c counting[V]) add(delta V) {
	c.w.Helper()
	must[V](c.w)(c.Add(c.w.Context(), delta))
}

func (c counting[V]) want(want V) {
	c.w.Helper()
	if got := must[V](c.w)(c.Get(c.w.Context())); got != want {
		c.w.Errorf("got %v, want %v", got, want)
	}
}

func (w *world) wantData(want string) {
	w.Helper()
	if got := w.data(w.path); got != want {
		w.Errorf("data %q, want %q", got, want)
	}
}

func (w *world) counter() counting[int64] {
	w.Helper()
	return w.counterOf(w.client("client"))
}

func (w *world) counterOf(client *client) counting[int64] {
	w.Helper()
	c, err := counter.New(client.Session, w.path, counter.Options[int64]{})
	w.must(err)
	return counting[int64]{c, w}
}
