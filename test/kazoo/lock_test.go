package kazoo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
)

// threads is how many goroutines want one lock: kazoo's thread_count.
const threads = 20

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

func TestLock_One(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		one, another := w.lock(c, "one"), w.lock(c, "another")
		h := acquire(w, one.Acquire)
		w.wantContenders(another, "one")
		if !one.Held() || !h.Valid() || another.Held() {
			w.Error("one has it and does not say so, or another does")
		}
		release(w, h)
		if one.Held() || h.Valid() {
			w.Error("it is still held")
		}
		w.wantContenders(another)
	})
}

func TestLock_Lock(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		first := w.lock(c, "test")
		h := acquire(w, first.Acquire) // to make the others line up
		calls := map[string]*call[*lock.Held]{}
		for i := range 5 {
			name := fmt.Sprint("contender", i)
			calls[name] = acquireLater(w.Context(), w, w.lock(c, name).Acquire)
		}
		line := w.untilContenders(6, first)
		if line[0] != "test" {
			w.Fatalf("the holder is not the first: %q", line)
		}
		release(w, h)
		for line = line[1:]; len(line) > 0; line = line[1:] {
			h := calls[line[0]].get(w)
			for _, name := range line[1:] {
				w.goOn(calls[name])
			}
			w.wantContenders(first, line...)
			release(w, h)
		}
		w.wantContenders(first)
	})
}

func TestLock_Reconnect(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		l := w.lock(c, "test")
		h := acquire(w, l.Acquire)
		other := acquireLater(w.Context(), w, w.lock(c, "contender").Acquire)
		w.wantList("contenders", w.untilContenders(2, l), "test", "contender")
		c.expireSession()
		w.want(context.Cause(h.Context()), session.ErrSessionExpired) // kazoo's holder is not told
		release(w, h)
		got := other.get(w)
		w.wantContenders(l, "contender")
		release(w, got)
	})
}

func TestLock_NonBlocking(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		l := w.lock(c, "one")
		h := acquire(w, l.Acquire)
		if _, ok := w.tryLock(w.lock(c, "one")); ok {
			w.Error("acquired twice")
		}
		w.wantContenders(l, "one")
		release(w, h)
	})
}

func TestLock_FailFirstCall(t *testing.T) {
	both(t, func(w *world) {
		l := w.lock(w.client("client"), "one")
		h := acquire(w, l.Acquire)
		w.wantContenders(l, "one")
		release(w, h)
	})
}

func TestLock_Cancel(t *testing.T) {
	both(t, func(w *world) {
		one, two := w.lock(w.client("client"), "one"), w.lock(w.client("client2"), "two")
		h := acquire(w, one.Acquire)
		ctx, cancel := context.WithCancel(w.Context())
		waiter := acquireLater(ctx, w, two.Acquire)
		w.wantList("contenders", w.untilContenders(2, two), "one", "two")
		cancel()
		waiter.fails(w, context.Canceled)
		w.wantList("contenders", w.untilContenders(1, two), "one")
		release(w, h)
		release(w, acquire(w, two.Acquire)) // kazoo's next acquire would be cancelled, too, had it not waited
	})
}

func TestLock_NoDoubleCalls(t *testing.T) {
	both(t, func(w *world) {
		l := w.lock(w.client("client"), "one")
		h := acquire(w, l.Acquire)
		ctx, cancel := context.WithTimeout(w.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx)
		w.want(err, context.DeadlineExceeded)
		if !l.Held() {
			w.Error("not held any more")
		}
		release(w, h)
		if l.Held() {
			w.Error("still held")
		}
	})
}

func TestLock_SameThreadNoBlock(t *testing.T) {
	both(t, func(w *world) {
		l := w.lock(w.client("client"), "one")
		if _, ok := w.tryLock(l); !ok {
			w.Fatal("not free")
		}
		if _, ok := w.tryLock(l); ok {
			w.Error("acquired twice")
		}
	})
}

func TestLock_ManyThreadsNoBlock(t *testing.T) {
	both(t, func(w *world) {
		l := w.lock(w.client("client"), "one")
		var calls []*call[*lock.Held]
		for range threads {
			calls = append(calls, acquireLater(w.Context(), w, l.TryAcquire))
		}
		got := 0
		for _, c := range calls {
			if w.until("the call's end", c.ended); c.err == nil {
				got++
			} else {
				w.want(c.err, lock.ErrNotAcquired)
			}
		}
		if got != 1 {
			w.Errorf("%d have it", got)
		}
	})
}

func TestLock_ManyThreads(t *testing.T) {
	both(t, func(w *world) {
		l := w.lock(w.client("client"), "one")
		var acquired atomic.Int32
		var wg sync.WaitGroup
		ready := make(chan struct{})
		for range threads {
			wg.Go(func() {
				<-ready
				ctx, cancel := context.WithTimeout(w.Context(), limit)
				defer cancel()
				h, err := l.Acquire(ctx)
				if err != nil {
					w.Error(err)
					return
				}
				before := acquired.Load()
				acquired.Add(1)
				wait.Pass(w, 10*time.Millisecond) // for another to come in
				if diff := acquired.Load() - before; diff != 1 {
					w.Errorf("%d were in at once", diff)
				}
				if err := letGo(w, h); err != nil {
					w.Error(err)
				}
			})
		}
		close(ready)
		wg.Wait()
		if acquired.Load() != threads {
			w.Errorf("acquired %d times", acquired.Load())
		}
	})
}

func TestLock_Reacquire(t *testing.T) {
	both(t, func(w *world) {
		l := w.lock(w.client("client"), "one")
		release(w, acquire(w, l.Acquire))
		release(w, acquire(w, l.Acquire))
	})
}

func TestLock_Ephemeral(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client1", func(opts *session.Options) { opts.StopTimeout = time.Second }) // the hold keeps it open
		h := acquire(w, w.lockBy(lock.New, c, lock.Options{Identifier: "ephemeral", Persistent: true}).Acquire)
		c.stop()
		there, stat, err := w.looks().Exists(w.Context(), h.Node())
		w.must(err)
		if !there || stat.EphemeralOwner != 0 {
			w.Errorf("its contender: %v, %+v", there, stat)
		}
		if _, ok := w.tryLock(w.lock(w.client("client"), "other")); ok {
			w.Error("another has it")
		}
	})
}

func TestLock_Timeout(t *testing.T) {
	both(t, func(w *world) {
		h := acquire(w, w.lock(w.client("client"), "one").Acquire)
		const patience = 3 * time.Second
		start := time.Now()
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		_, err := w.lock(w.client("client2"), "two").Acquire(ctx)
		w.want(err, context.DeadlineExceeded)
		if d := time.Since(start); d < patience {
			w.Errorf("it gave up after %v", d)
		}
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !ok || blocked.Blocker != h.Node() || blocked.Identifier != "one" {
			w.Errorf("got %v, want it to name %s", err, h.Node())
		}
		release(w, h)
	})
}

func TestLock_ReadLock(t *testing.T) {
	both(t, func(w *world) {
		one := w.lockBy(lock.NewRead, w.client("client"), lock.Options{Identifier: "reader one"})
		two := w.lockBy(lock.NewRead, w.client("client2"), lock.Options{Identifier: "reader two"})
		writer := w.lockBy(lock.NewWrite, w.client("client3"), lock.Options{Identifier: "writer"})
		h1, ok1 := w.tryLock(one)
		h2, ok2 := w.tryLock(two)
		if !ok1 || !ok2 || !one.Held() || !two.Held() {
			w.Fatal("readers don't share it")
		}
		if _, ok := w.tryLock(writer); ok {
			w.Error("a writer came in")
		}
		w.wantContenders(one, "reader one", "reader two")
		release(w, h1)
		if _, ok := w.tryLock(writer); ok {
			w.Error("a writer came in beside the other reader")
		}
		release(w, h2)
		if _, ok := w.tryLock(writer); !ok {
			w.Error("not free")
		}
	})
}

func TestLock_WriteLock(t *testing.T) {
	both(t, func(w *world) {
		writer := w.lockBy(lock.NewWrite, w.client("client"), lock.Options{Identifier: "writer"})
		if _, ok := w.tryLock(writer); !ok || !writer.Held() {
			w.Fatal("not free")
		}
		if _, ok := w.tryLock(writer); ok {
			w.Error("acquired twice")
		}
		c := w.client("client2")
		for kind, l := range map[string]*lock.Lock{
			"reader":        w.lockBy(lock.NewRead, c, lock.Options{Identifier: "reader"}),
			"second writer": w.lockBy(lock.NewWrite, c, lock.Options{}),
			"plain lock":    w.lock(c, ""),
		} {
			if _, ok := w.tryLock(l); ok {
				w.Errorf("a %s came in", kind)
			}
		}
		w.wantContenders(writer, "writer")
	})
}

// A writer holds it, a reader waits, behind it a writer: kazoo 2.8 deadlocks here.
func TestLock_RWLock(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		first := w.lockBy(lock.NewWrite, c, lock.Options{Identifier: "test"})
		h := acquire(w, first.Acquire)
		reader := acquireLater(w.Context(), w, w.lockBy(lock.NewRead, c, lock.Options{Identifier: "reader"}).Acquire)
		w.untilContenders(2, first)
		writer := acquireLater(w.Context(), w, w.lockBy(lock.NewWrite, c, lock.Options{Identifier: "writer"}).Acquire)
		w.wantList("contenders", w.untilContenders(3, first), "test", "reader", "writer")
		w.goOn(reader, writer)
		release(w, h)
		h = reader.get(w)
		w.goOn(writer)
		w.wantContenders(first, "reader", "writer")
		late := acquireLater(w.Context(), w, w.lockBy(lock.NewRead, c, lock.Options{Identifier: "late"}).Acquire)
		w.wantList("contenders", w.untilContenders(3, first), "reader", "writer", "late")
		release(w, h)
		h = writer.get(w)
		w.goOn(late)
		release(w, h)
		release(w, late.get(w))
	})
}

const goNode = "_c_8eb60557ba51e0da67eefc47467d3f34-lock-0000000031"

// inLine makes kazoo's children: a contender of go-zookeeper's lock with number 31, and so many znodes that ours gets number 32.
func (w *world) inLine() {
	w.Helper()
	names := []string{"hello", goNode, "world", "lock", "lock__0000000000", "-lock-", "12345"}
	for i := len(names); i < 32; i++ {
		names = append(names, fmt.Sprint("before", i))
	}
	w.create(w.path, names...)
}

// wantNumber checks that ours is behind.
func (w *world) wantNumber(l *lock.Lock, identifier string) {
	w.Helper()
	list := must[[]lock.Contender](w)(l.Contenders(w.Context()))
	i := slices.IndexFunc(list, func(c lock.Contender) bool { return c.Identifier == identifier })
	if i < 0 || !strings.HasSuffix(list[i].Node, "__lock__0000000032") {
		w.Errorf("contenders %+v, want one with number 32", list)
	}
}

func TestSequence_GetPredecessor(t *testing.T) {
	both(t, func(w *world) {
		w.inLine()
		l := w.lock(w.client("client"), "python")
		h, ok := w.tryLock(l)
		if !ok {
			w.Fatal("by default it waits for the node of go-zookeeper")
		}
		w.wantNumber(l, "python")
		release(w, h)
	})
}

func TestSequence_GetPredecessorGo(t *testing.T) {
	both(t, func(w *world) {
		w.inLine()
		l := w.lockBy(lock.New, w.client("client"), lock.Options{Identifier: "python", ExtraPatterns: []string{"-lock-"}})
		ctx, cancel := context.WithCancel(w.Context())
		waiter := acquireLater(ctx, w, l.Acquire)
		w.untilContenders(2, l)
		w.wantNumber(l, "python")
		w.goOn(waiter)
		cancel()
		waiter.fails(w, context.Canceled)
		_, err := l.TryAcquire(w.Context())
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != session.Join(w.path, goNode) {
			w.Errorf("got %v, want it to be behind %s", err, goNode)
		}
	})
}
