package kazoo_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// What happens in these cases happens between a look and the transaction that relies on it, so that this is refused.

// The records of another: one that is over when a case begins, and one that is not.
const (
	past    = `{"version": 1, "holder": "python", "end": "1970-01-01T00:00:05"}`
	current = `{"version": 1, "holder": "python", "end": "1970-01-01T00:01:40"}`
)

func (w *world) record() string { return session.Join(w.path, "lease_holder") }

// removeContender removes the only one there.
func (w *world) removeContender(dir string) {
	w.Helper()
	names := slices.DeleteFunc(w.children(dir), func(name string) bool { return !strings.Contains(name, "__lock__") })
	if len(names) != 1 {
		w.Fatalf("contenders %q", names)
	}
	w.remove(session.Join(dir, names[0]))
}

func TestRefusedObtain(t *testing.T) {
	each(t, map[string]struct {
		before   string // the record
		happen   func(w *world)
		obtained bool
		after    string // the record, if it was not
	}{
		"another has made the record": {"", func(w *world) { w.set(w.record(), current) }, false, current},
		"another has taken it over":   {past, func(w *world) { w.set(w.record(), current) }, false, current},
		"another has removed it":      {past, func(w *world) { w.remove(w.record()) }, true, ""},
		"our contender was removed":   {"", func(w *world) { w.removeContender(w.path) }, true, ""},
	}, func(w *world, tt struct {
		before   string
		happen   func(w *world)
		obtained bool
		after    string
	},
	) {
		if tt.before != "" {
			w.set(w.record(), tt.before)
		}
		c := w.client("client")
		l := w.lease(c, "ours", 3, newClock())
		stop := c.stopBefore(opMulti, w.record())
		obtaining := acquireLater(w.Context(), w, l.Obtain)
		stop.meanwhile(func() { tt.happen(w) })
		if tt.obtained {
			h := obtaining.get(w)
			if !strings.Contains(w.data(w.record()), "ours") || !h.Valid() {
				w.Errorf("valid: %v, the record is %s", h.Valid(), w.data(w.record()))
			}
			release(w, h)
			w.wantList("children", w.children(w.path))
			return
		}
		obtaining.fails(w, lease.ErrNotObtained)
		if got := w.data(w.record()); got != tt.after || l.Held() {
			w.Errorf("held: %v, the record is %s", l.Held(), got)
		}
		w.wantList("children", w.children(w.path), "lease_holder")
	})
}

// The record is another's by the time that it is to be extended, or removed.
func TestRefusedRenewAndRelease(t *testing.T) {
	each(t, map[string]struct {
		do   func(ctx context.Context, h *lease.Held) error
		want error
	}{
		"Renew":   {func(ctx context.Context, h *lease.Held) error { return h.Renew(ctx) }, lease.ErrLost},
		"Release": {func(ctx context.Context, h *lease.Held) error { return h.Release(ctx) }, nil},
	}, func(w *world, tt struct {
		do   func(ctx context.Context, h *lease.Held) error
		want error
	},
	) {
		c := w.client("client")
		h := acquire(w, w.lease(c, "ours", 3, newClock()).Obtain)
		stop := c.stopBefore(opMulti, w.record())
		doing := later(w, func() (struct{}, error) { return struct{}{}, tt.do(w.Context(), h) })
		stop.meanwhile(func() { w.set(w.record(), current) })
		doing.fails(w, tt.want)
		if h.Valid() {
			w.Error("the hold is valid")
		}
		if got := w.data(w.record()); got != current {
			w.Errorf("the record is %s", got)
		}
		w.wantList("children", w.children(w.path), "lease_holder")
	})
}

// The number of leases, the znode that has it, or our place are other ones by the time that a lease is to be made.
func TestRefusedLeaseOfASemaphore(t *testing.T) {
	each(t, map[string]struct {
		happen func(w *world)
		want   error
		number string
		places int32 // how many contenders we had
	}{
		"another number":            {func(w *world) { w.set(w.path, "3") }, semaphore.ErrMaxLeases, "3", 1},
		"the znode is gone":         {func(w *world) { w.remove(w.path) }, nil, "2", 1},
		"our contender was removed": {func(w *world) { w.removeContender(w.innerLock()) }, nil, "2", 2},
	}, func(w *world, tt struct {
		happen func(w *world)
		want   error
		number string
		places int32 // how many contenders we had
	},
	) {
		c := w.client("client")
		s := w.semaphore(c, semaphore.Options{Identifier: "fred", MaxLeases: 2})
		stop := c.stopBefore(opMulti, w.path)
		acquiring := acquireLater(w.Context(), w, s.Acquire)
		stop.meanwhile(func() { tt.happen(w) })
		if tt.want == nil {
			h := acquiring.get(w)
			w.wantStands(h)
			w.wantHolders(s, "fred")
			release(w, h)
		} else {
			acquiring.fails(w, tt.want)
		}
		w.wantData(tt.number)
		w.wantHolders(s)
		w.untilChildren(0, w.innerLock())
		_, stat, err := w.looks().Exists(w.Context(), w.innerLock())
		w.must(err)
		if made := stat.Cversion / 2; made != tt.places { // it counts what was made and what was removed
			w.Errorf("%d contenders, want %d", made, tt.places)
		}
	})
}

// The znode was empty, and has another's number by the time that ours is to be written.
func TestRefusedNumberOfASemaphore(t *testing.T) {
	both(t, func(w *world) {
		w.create(w.path)
		c := w.client("client")
		s := w.semaphore(c, semaphore.Options{MaxLeases: 2})
		stop := c.stopBefore(opSetData, w.path)
		acquiring := acquireLater(w.Context(), w, s.Acquire)
		stop.meanwhile(func() { w.set(w.path, "3") })
		acquiring.fails(w, semaphore.ErrMaxLeases)
		w.wantData("3")
		w.wantHolders(s)
		w.untilChildren(0, w.innerLock())
	})
}

// firstEntry is the one that is put first.
func (w *world) firstEntry() string { return session.Join(w.path, "entries", "entry-100-0000000000") }

// The first entry is another one by the time that it is to be taken.
func TestRefusedTake(t *testing.T) {
	each(t, map[string]struct {
		happen func(w *world)
		want   string // of the two entries
	}{
		"it is gone":     {func(w *world) { w.remove(w.firstEntry()) }, "two"},
		"it was set":     {func(w *world) { w.set(w.firstEntry(), "set") }, "set"},
		"another has it": {func(w *world) { w.take(w.lockingQueue(w.client("client2")), "one") }, "two"},
	}, func(w *world, tt struct {
		happen func(w *world)
		want   string // of the two entries
	},
	) {
		c := w.client("client")
		q := w.lockingQueue(c)
		w.put(q, "one", queue.DefaultPriority)
		w.put(q, "two", queue.DefaultPriority)
		stop := c.stopBefore(opMulti, session.Join(w.path, "taken"))
		taking := acquireLater(w.Context(), w, q.TryGet)
		stop.meanwhile(func() { tt.happen(w) })
		h := taking.get(w)
		w.wantStands(h)
		if got := string(h.Value()); got != tt.want {
			w.Errorf("got %q, want %q", got, tt.want)
		}
	})
}

// What is held, or the hold, is gone by the time that it is to be consumed.
func TestRefusedConsume(t *testing.T) {
	each(t, map[string]struct {
		gone func(h *queue.Held) string
		left []string
	}{
		"the hold is gone":  {(*queue.Held).Node, []string{"one", "two"}},
		"the entry is gone": {(*queue.Held).Path, []string{"two"}},
	}, func(w *world, tt struct {
		gone func(h *queue.Held) string
		left []string
	},
	) {
		c := w.client("client")
		q := w.lockingQueue(c)
		w.put(q, "one", queue.DefaultPriority)
		w.put(q, "two", queue.DefaultPriority)
		h := w.take(q, "one")
		stop := c.stopBefore(opMulti, session.Join(w.path, "taken"))
		consuming := later(w, func() (struct{}, error) { return struct{}{}, h.Consume(w.Context()) })
		stop.meanwhile(func() { w.remove(tt.gone(h)) })
		consuming.fails(w, queue.ErrLost)
		w.wantList("taken", w.children(session.Join(w.path, "taken")))
		w.wantLen(q, len(tt.left))
		other := w.lockingQueue(w.client("client2"))
		for _, value := range tt.left {
			w.consume(w.take(other, value))
		}
	})
}

// PutAll puts nothing if one of its entries can't be put.
func TestRefusedPutAll(t *testing.T) {
	both(t, func(w *world) {
		q := w.queue()
		w.create(w.path, "entry-100-0000000002") // by name: the next number is 1
		_, err := q.PutAll(w.Context(), [][]byte{[]byte("one"), []byte("two"), []byte("three")}, queue.DefaultPriority)
		w.want(err, session.ErrNodeExists)
		w.wantList("children", w.children(w.path), "entry-100-0000000002")
	})
}

// The first entry is another one by the time that it is to be removed.
func TestRefusedRemoval(t *testing.T) {
	each(t, map[string]struct {
		happen func(w *world, entry string)
		want   string
	}{
		"it is gone": {(*world).remove, "two"},
		"it was set": {func(w *world, entry string) { w.set(entry, "set") }, "set"},
	}, func(w *world, tt struct {
		happen func(w *world, entry string)
		want   string
	},
	) {
		c := w.client("client")
		q := w.queueOf(c)
		w.put(q, "one", queue.DefaultPriority)
		w.put(q, "two", queue.DefaultPriority)
		stop := c.stopBefore(opDelete, w.path)
		getting := later(w, func() ([]byte, error) { return q.TryGet(w.Context()) })
		stop.meanwhile(func() { tt.happen(w, session.Join(w.path, "entry-100-0000000000")) })
		if got := string(getting.get(w)); got != tt.want {
			w.Errorf("got %q, want %q", got, tt.want)
		}
	})
}

// Another has changed the number by the time that ours is to be written, or the znode is gone, or is another one, which no
// version tells.
func TestRefusedAdd(t *testing.T) {
	each(t, map[string]struct {
		happen func(w *world)
		want   error
		data   string
	}{
		"it was changed": {func(w *world) { w.set(w.path, "10") }, nil, "11"},
		"it is gone":     {func(w *world) { w.remove(w.path) }, nil, "1"},
		"it is another one": {func(w *world) {
			w.remove(w.path)
			w.set(w.path, "10") // so its version is 1
		}, session.ErrUncertain, "3"},
	}, func(w *world, tt struct {
		happen func(w *world)
		want   error
		data   string
	},
	) {
		w.set(w.path, "2")
		c := w.client("client")
		number := w.counterOf(c)
		stop := c.stopBefore(opSetData, w.path)
		adding := later(w, func() (int64, error) { return number.Add(w.Context(), 1) })
		stop.meanwhile(func() { tt.happen(w) })
		adding.fails(w, tt.want)
		w.wantData(tt.data)
		if last, ok := number.Last(); ok != (tt.want == nil) || ok && last.Post != last.Pre+1 {
			w.Errorf("the last change is %+v, %v", last, ok)
		}
	})
}

// Ours is gone by the time that ready is to be made, or another has made it.
func TestRefusedReady(t *testing.T) {
	each(t, map[string]func(w *world, d *barrier.DoubleBarrier){
		"ours is gone":        func(w *world, d *barrier.DoubleBarrier) { w.remove(d.Node()) },
		"another has made it": func(w *world, _ *barrier.DoubleBarrier) { w.create(w.path, "ready") },
	}, func(w *world, happen func(w *world, d *barrier.DoubleBarrier)) {
		c := w.client("client")
		d := w.double(c, w.path, 1)
		stop := c.stopBefore(opMulti, session.Join(w.path, "ready"))
		entering := w.enter(d)
		stop.meanwhile(func() { happen(w, d) })
		m := entering.get(w)
		w.wantList("children", w.children(w.path), slices.Sorted(slices.Values([]string{"ready", m.Node()[len(w.path)+1:]}))...)
		w.leaveBarrier(m).get(w)
		w.wantList("children", w.children(w.path))
	})
}
