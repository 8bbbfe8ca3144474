package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// kinds has both kinds of queues behind one interface.
func kinds(t *testing.T, test func(w *world, entries string, of func(s *session.Session) taker)) {
	t.Helper()
	for kind, c := range map[string]struct {
		entries string
		of      func(w *world, s *session.Session) taker
	}{
		"queue":   {path, func(w *world, s *session.Session) taker { return plain{w.queue(s)} }},
		"locking": {path + "/entries", func(w *world, s *session.Session) taker { return locking{w.locking(s)} }},
	} {
		t.Run(kind, func(t *testing.T) {
			inWorld(t, func(w *world) {
				test(w, c.entries, func(s *session.Session) taker { return c.of(w, s) })
			})
		})
	}
}

// taker takes entries off a queue for good.
type taker interface {
	putter
	next(ctx context.Context) (string, error)
}

type plain struct{ *queue.Queue }

func (q plain) next(ctx context.Context) (string, error) {
	value, err := q.TryGet(ctx)
	return string(value), err
}

type locking struct{ *queue.LockingQueue }

func (q locking) next(ctx context.Context) (string, error) {
	h, err := q.TryGet(ctx)
	if err != nil {
		return "", err
	}
	return string(h.Value()), h.Consume(ctx)
}

// fill puts the numbers below n, with the default priority.
func (w *world) fill(q taker, n int) {
	w.Helper()
	for i := range n {
		w.put(q, fmt.Sprint(i))
	}
}

// takes takes these values, in their order.
func (w *world) takes(q taker, want ...string) {
	w.Helper()
	for _, v := range want {
		if got, err := q.next(w.Context()); err != nil || got != v {
			w.Errorf("got %q, %v, want %q", got, err, v)
		}
	}
}

func numbers(from, to int) []string {
	var list []string
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

// counted counts the requests of a client: all but proofs of life and pings, and the lists of a directory among them.
func (w *world) counted(client, dir string) (all, lists *atomic.Int32) {
	all, lists = new(atomic.Int32), new(atomic.Int32)
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		switch {
		case r.Client != client || r.Op == zktest.OpPing || r.Op == zktest.OpMulti && len(r.Ops) == 1:
		case r.Op == zktest.OpGetChildren2 && r.Path == dir:
			lists.Add(1)
			all.Add(1)
		default:
			all.Add(1)
		}
		return zktest.Action{}
	})
	return all, lists
}

// An empty queue is no error but ErrEmpty, and entries come in the order of their priorities.
func TestPriority(t *testing.T) {
	kinds(t, func(w *world, _ string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.wantLen(q, 0)
		if got, err := q.next(w.Context()); !errors.Is(err, queue.ErrEmpty) {
			w.Errorf("got %q, %v", got, err)
		}
		for _, e := range []struct {
			value    string
			priority int
		}{{"four", 101}, {"one", 0}, {"two", 0}, {"three", 10}} {
			_, err := q.Put(w.Context(), []byte(e.value), e.priority)
			w.Must(err)
		}
		w.takes(q, "one", "two", "three", "four")
		w.wantLen(q, 0)
	})
}

// A backlog is listed once, however many of its entries are taken one by one, and each costs no more requests than with a list.
func TestBacklogIsListedOnce(t *testing.T) {
	kinds(t, func(w *world, entries string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.fill(q, 100)
		w.takes(q, "0")
		all, lists := w.counted("a", entries)
		w.takes(q, numbers(1, 100)...)
		if n := lists.Load(); n > 0 {
			w.Errorf("listed %d times", n)
		}
		most := map[string]int32{path: 3, path + "/entries": 8}[entries]
		if n := all.Load(); n > 99*most {
			w.Errorf("%d requests for 99 entries, more than %d each", n, most)
		}
		if got, err := q.next(w.Context()); !errors.Is(err, queue.ErrEmpty) {
			w.Errorf("got %q, %v at the end", got, err)
		}
	})
}

// An entry that is put later and has a better priority comes first, also when as many entries were taken meanwhile.
func TestBetterPriorityComesFirst(t *testing.T) {
	kinds(t, func(w *world, _ string, of func(s *session.Session) taker) {
		q, other := of(w.Session("a")), of(w.Session("b"))
		w.fill(other, 4)
		w.takes(q, "0")
		w.takes(other, "1")
		if _, err := other.Put(w.Context(), []byte("urgent"), 1); err != nil {
			w.Fatal(err)
		}
		w.takes(q, "urgent", "2", "3")
	})
}

// A handle passes entries that others have taken, and lists anew when that costs less.
func TestTakenByOthers(t *testing.T) {
	kinds(t, func(w *world, entries string, of func(s *session.Session) taker) {
		q, other := of(w.Session("a")), of(w.Session("b"))
		w.fill(other, 200)
		w.takes(q, "0")
		w.takes(other, numbers(1, 3)...)
		_, lists := w.counted("a", entries)
		w.takes(q, "3")
		if n := lists.Load(); n > 0 {
			w.Errorf("listed %d times because two entries were taken", n)
		}
		w.takes(other, numbers(4, 150)...)
		all, _ := w.counted("a", entries)
		w.takes(q, "150")
		if n := all.Load(); n > 10 {
			w.Errorf("%d requests for one entry after others took many", n)
		}
		w.takes(other, numbers(151, 200)...)
		if got, err := q.next(w.Context()); !errors.Is(err, queue.ErrEmpty) {
			w.Errorf("got %q, %v after others took all", got, err)
		}
		w.put(other, "last")
		w.takes(q, "last")
	})
}

// A directory that was deleted and created again has as many creates as before, and other entries.
func TestDirectoryOfOtherEntries(t *testing.T) {
	kinds(t, func(w *world, entries string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.fill(q, 3)
		w.takes(q, "0")
		err := errors.Join(w.Srv.Delete(entries), w.Srv.Create(entries, nil))
		for i, name := range []string{"entry-001-0000000000", "entry-100-0000000001", "entry-100-0000000002"} {
			err = errors.Join(err, w.Srv.Create(entries+"/"+name, []byte(fmt.Sprint("new ", i))))
		}
		w.Must(err)
		w.takes(q, "new 0", "new 1", "new 2")
	})
}

// Servers that came back with a backup give the same numbers again, to other entries.
func TestEntriesAfterARestore(t *testing.T) {
	kinds(t, func(w *world, entries string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.fill(q, 3)
		backup := w.Srv.Backup()
		w.put(q, "3")
		w.takes(q, "0")
		w.Srv.Restore(backup, zktest.RestoreOptions{ForgetSessions: true})
		w.Must(w.Srv.Create(entries+"/entry-001-0000000003", []byte("urgent")))
		if got, err := q.next(w.Within(time.Minute)); err != nil || got != "urgent" {
			w.Errorf("got %q, %v", got, err)
		}
	})
}

// At the end of the sequence numbers creates are not counted any more. The entries are listed each time then.
func TestCreatesThatAreNotCounted(t *testing.T) {
	kinds(t, func(w *world, entries string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.fill(q, 3)
		w.Must(w.Srv.SetCreates(entries, 1<<31-1))
		w.takes(q, "0")
		w.Must(w.Srv.Create(entries+"/entry-001-2147483647", []byte("urgent")))
		w.takes(q, "urgent", "1", "2")
	})
}

// Goroutines of one handle share what it knows: each entry is taken once, and none is missed.
func TestOneHandleOfMany(t *testing.T) {
	kinds(t, func(w *world, _ string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.fill(q, 60)
		got := make(chan string, 100)
		for range 5 {
			go func() {
				for {
					value, err := q.next(w.Context())
					if err != nil && !errors.Is(err, queue.ErrEmpty) {
						w.Error(err)
					}
					if got <- value; err != nil {
						return
					}
				}
			}()
		}
		var all []string
		for ended := 0; ended < 5; {
			if v := <-got; v == "" {
				ended++
			} else {
				all = append(all, v)
			}
		}
		want := numbers(0, 60)
		slices.Sort(all)
		slices.Sort(want)
		if !slices.Equal(all, want) {
			w.Errorf("got %q", all)
		}
	})
}
