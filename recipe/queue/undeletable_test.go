package queue_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Somebody sets an entry between a Get's read and its delete: Get returns the new value.
func TestEntrySetBeforeTheRemoval(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.queue(w.Session("a"))
		w.put(q, "one", "two")
		w.Steps(recipetest.Before(is(zktest.OpDelete), func() { w.Check(w.Srv.Set(path+"/entry-100-0000000000", []byte("set"))) }))
		for _, want := range []string{"set", "two"} {
			value, err := q.TryGet(w.Context())
			w.wantValue(value, err, want, nil)
		}
	})
}

// Somebody deletes an entry just before a Get's read, or between its read and its delete: Get returns the next one.
func TestEntryDeletedBeforeTheRemoval(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpDelete} {
		inWorld(t, func(w *world) {
			q := w.queue(w.Session("a"))
			w.put(q, "one", "two")
			w.Steps(recipetest.Before(is(op), func() { w.Check(w.Srv.Delete(path + "/entry-100-0000000000")) }))
			value, err := q.TryGet(w.Context())
			w.wantValue(value, err, "two", nil)
			w.wantLen(q, 0)
		})
	}
}

// PutAll puts nothing if one of its entries can't be put, because somebody has created it by name.
func TestPutAllOrNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.queue(w.Session("a"))
		w.Must(w.Srv.Create(path+"/entry-100-0000000002", nil)) // the next number is 1
		_, err := q.PutAll(w.Context(), [][]byte{[]byte("one"), []byte("two"), []byte("three")}, 100)
		if !errors.Is(err, session.ErrNodeExists) {
			w.Errorf("put: %v", err)
		}
		w.wantLen(q, 1)
	})
}

// Somebody creates an entry again by its name, and its number comes again: that is not the end of the numbers.
func TestNumberMadeByName(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.queue(w.Session("a"))
		w.Must(w.Srv.Create(path+"/entry-100-0000000001", []byte("restored")))
		for range 2 {
			_, err := q.Put(w.Context(), []byte("one"), 100)
			if !errors.Is(err, session.ErrNodeExists) || errors.Is(err, queue.ErrSequenceExhausted) {
				w.Errorf("put: %v", err)
			}
		}
		value, err := q.TryGet(w.Context())
		w.wantValue(value, err, "restored", nil)
		w.put(q, "one", "two")
		w.wantLen(q, 2)
	})
}

// The directory's cversion shows the end of the numbers, though no entry does.
func TestNumbersAtTheirEnd(t *testing.T) {
	kinds(t, func(w *world, entries string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.Must(w.Srv.Create(entries, nil))
		w.Must(w.Srv.SetCreates(entries, 1<<31-1))
		_, err := q.PutAll(w.Context(), [][]byte{{1}, {2}}, 100) // one name for both
		if !errors.Is(err, queue.ErrSequenceExhausted) || strings.Contains(err.Error(), "seqnode") {
			w.Errorf("put: %v", err)
		}
		w.wantLen(q, 0)
	})
}

// withChild makes an entry in front that can't be deleted until childless is called.
func (w *world) withChild(entries string) (childless func()) {
	w.Helper()
	for _, p := range []string{"/entry-000-x", "/entry-000-x/child"} {
		w.Must(w.Srv.Create(entries+p, []byte("odd")))
	}
	return func() {
		w.Check(w.Srv.Delete(entries + "/entry-000-x/child"))
	}
}

// An entry that can't be deleted does not block those behind it. A warning names it, and Get takes it when it can be deleted.
func TestEntryWithChild(t *testing.T) {
	inWorld(t, func(w *world) {
		var told bytes.Buffer
		opts := queue.Options{Logger: slog.New(slog.NewTextHandler(&told, nil))}
		q := must[*queue.Queue](w)(queue.New(w.Session("a"), path, opts))
		w.put(q, "one")
		childless := w.withChild(path)
		value, err := q.Get(w.Context())
		w.wantValue(value, err, "one", nil)
		value, err = q.TryGet(w.Context())
		w.wantValue(value, err, "", queue.ErrEmpty)
		if !strings.Contains(told.String(), path+"/entry-000-x") {
			w.Errorf("told: %q", told.String())
		}
		time.AfterFunc(time.Minute, childless)
		begun := time.Now()
		value, err = q.Get(w.Context())
		w.wantValue(value, err, "odd", nil)
		if waited := time.Since(begun); waited < time.Minute || waited > 2*time.Minute {
			w.Errorf("waited %v", waited)
		}
	})
}

// However often Gets pass such an entry, a handle reads it and warns of it once in ten seconds. It does not warn of each of very
// many.
func TestEntriesWithChildAreRemembered(t *testing.T) {
	const many = 1100
	for what, tt := range map[string]struct{ entries, reads, warnings int }{
		"one":  {1, 1, 1},
		"many": {many, many + 9*(many-1000), 1000 + 1},
	} {
		for _, locking := range []bool{false, true} {
			if locking && tt.entries == many {
				continue // the same memory
			}
			inWorld(t, func(w *world) {
				var told bytes.Buffer
				opts := queue.Options{Logger: slog.New(slog.NewTextHandler(&told, nil))}
				s, dir := w.Session("a"), path
				var pass func() error
				if locking {
					dir += "/entries"
					q := must[*queue.LockingQueue](w)(queue.NewLocking(s, path, opts))
					pass = func() error { _, err := q.TryGet(w.Context()); return err }
				} else {
					q := must[*queue.Queue](w)(queue.New(s, path, opts))
					pass = func() error { _, err := q.TryGet(w.Context()); return err }
				}
				for n := range tt.entries {
					entry := fmt.Sprintf("%s/entry-000-%010d", dir, n)
					w.Must(errors.Join(w.Srv.Create(entry, nil), w.Srv.Create(entry+"/child", nil)))
				}
				var reads atomic.Int32
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op == zktest.OpGetData {
						reads.Add(1)
					}
					return zktest.Action{}
				})
				for round := 1; round <= 2; round++ {
					for range 5 { // each lists twice before it returns that there is nothing
						if err := pass(); !errors.Is(err, queue.ErrEmpty) {
							w.Fatal(err)
						}
					}
					warnings := strings.Count(told.String(), "level=WARN")
					if n := int(reads.Load()); n != round*tt.reads || warnings != round*tt.warnings {
						w.Errorf("%s, locking: %v, round %d: read %d times, told of %d times", what, locking, round, n, warnings)
					}
					time.Sleep(10 * time.Second)
				}
			})
		}
	}
}

func TestEntryWithChildLocking(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.locking(w.Session("a"))
		w.put(q, "one")
		childless := w.withChild(path + "/entries")
		h := w.take(q, "one")
		if _, err := q.TryGet(w.Context()); !errors.Is(err, queue.ErrEmpty) {
			w.Errorf("try get: %v", err)
		}
		time.AfterFunc(30*time.Second, childless)
		w.consume(w.take(q, "odd"))
		w.consume(h)
	})
}

// All does not return an entry that can't be consumed again and again.
func TestAllPauses(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.locking(w.Session("a"))
		w.put(q, "one")
		w.Refuse(zktest.ErrNoAuth, func(r zktest.Request) bool { return isMulti(r) && r.Ops[0].Op == zktest.OpDelete })
		ctx := w.Within(time.Minute)
		steps := 0
		for range q.All(ctx) {
			if steps++; steps > 200 {
				w.Fatal("no pause")
			}
		}
		if steps < 60 {
			w.Errorf("%d steps in a minute", steps)
		}
	})
}
