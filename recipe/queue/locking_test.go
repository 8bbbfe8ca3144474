package queue_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The cases of kazoo's test_queue.py, for LockingQueue. Its validation is in TestQueueValidation.

const (
	entry = path + "/entries/entry-100-0000000000"
	taken = path + "/taken/entry-100-0000000000"
)

func TestLockingQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		q := w.locking(s)
		w.put(q, "one")
		if _, err := q.PutAll(w.Context(), [][]byte{[]byte("two"), []byte("three")}, 100); err != nil {
			w.Fatal(err)
		}
		w.wantLen(q, 3)
		for _, want := range []string{"one", "two", "three"} {
			h := w.take(q, want)
			w.wantHolds(h, true)
			h.Value()[0] = 'x' // of a copy
			if string(h.Value()) != want {
				w.Errorf("a second time: %q", h.Value())
			}
			w.consume(h)
			w.wantHolds(h, false)
			w.Ended(h, queue.ErrConsumed)
			w.consume(h) // a second time: the same outcome
		}
		w.wantLen(q, 0)
		if n := len(w.Srv.Children(path + "/taken")); n != 0 {
			w.Errorf("%d are taken", n)
		}
	})
}

func TestConsume(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		q, h := w.holding(s)
		id, stat, _ := w.Srv.Get(taken)
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).Match(id) || stat.EphemeralOwner != w.ID(s) || h.Token() != stat.Czxid || h.Node() != taken || h.Path() != entry {
			w.Errorf("%s: %q, %+v; %s", h.Node(), id, stat, h.Path())
		}
		w.Release(h)
		again := w.take(q, "one")
		if other, _, _ := w.Srv.Get(taken); string(other) == string(id) || again.Token() <= h.Token() {
			w.Errorf("id %q after %q, token %d after %d", other, id, again.Token(), h.Token())
		}
		w.consume(again)
		if err := again.Release(w.Context()); !errors.Is(err, queue.ErrConsumed) {
			w.Error(err)
		}
	})
}

func TestRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		q, h := w.holding(w.Session("a"))
		w.wantHolds(h, true)
		w.Release(h)
		w.wantHolds(h, false)
		w.Ended(h, queue.ErrReleased)
		if err := h.Consume(w.Context()); !errors.Is(err, queue.ErrReleased) {
			w.Error(err)
		}
		w.Release(h)
		w.consume(w.take(q, "one"))
		w.wantLen(q, 0)
	})
}

func TestConcurrentExecution(t *testing.T) {
	inWorld(t, func(w *world) {
		results := make(chan error, 3)
		for _, name := range []string{"a", "b", "c"} {
			q := w.locking(w.Session(name))
			go func() {
				h, err := q.Get(w.Within(time.Second))
				if err == nil {
					defer func() { _ = h.Release(w.Context()) }()
					time.Sleep(10 * time.Second)
				}
				results <- err
			}()
		}
		w.put(w.locking(w.Session("d")), "one")
		count := 0
		for range 3 {
			err := <-results
			if err == nil {
				count++
				continue
			}
			blocked, ok := errors.AsType[*recipe.BlockedError](err)
			if !ok || blocked.Blocker != taken || blocked.Detail != "1 taken" || !errors.Is(err, context.DeadlineExceeded) {
				w.Error(err)
			}
		}
		if count != 1 {
			w.Errorf("%d got it", count)
		}
	})
}

// Several entries are held at once, each by one getter; a getter that waits gets the entry that another gives back.
func TestTheNextFreeOne(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one", "two")
		first, second := w.take(a, "one"), w.take(b, "two")
		if _, err := b.TryGet(w.Context()); !errors.Is(err, queue.ErrEmpty) {
			w.Error(err)
		}
		got := make(chan *queue.Held)
		go func() { got <- w.take(b, "one") }()
		time.Sleep(20 * time.Second)
		w.Release(first)
		w.consume(<-got)
		w.consume(second)
		w.wantLen(a, 0)
	})
}

// Another takes the first entry just before, and Get tries the next one; or sets it, and Get returns the new value.
func TestTakenJustBefore(t *testing.T) {
	for want, happens := range map[string]func(w *world) error{
		"two": func(w *world) error { return w.Srv.Create(taken, nil) },
		"set": func(w *world) error { return w.Srv.Set(entry, []byte("set")) },
	} {
		inWorld(t, func(w *world) {
			q := w.locking(w.Session("a"))
			w.put(q, "one", "two")
			w.Steps(recipetest.Before(isMulti, func() { w.Check(happens(w)) }))
			h, err := q.TryGet(w.Context())
			if err != nil || string(h.Value()) != want {
				w.Fatalf("got %v, %v, want %q", h, err, want)
			}
			w.Release(h)
		})
	}
}

// The request of a take, a release or a consume is lost, or its reply. All of them return, and no znode is left.
func TestLostReplies(t *testing.T) {
	for what, match := range map[string]func(zktest.Request) bool{
		"take":    isTake,
		"release": is(zktest.OpDelete),
		"consume": func(r zktest.Request) bool { return isMulti(r) && r.Ops[1].Op == zktest.OpDelete },
	} {
		t.Run(what, func(t *testing.T) {
			for _, lost := range []zktest.Action{{LoseReply: true}, {Cut: true}} {
				inWorld(t, func(w *world) {
					q := w.locking(w.Session("a"))
					w.put(q, "one")
					w.Steps(recipetest.Meets(lost, match))
					w.Release(w.take(q, "one"))
					w.nothingTaken()
					w.consume(w.take(q, "one"))
					w.wantLen(q, 0)
					w.nothingTaken()
				})
			}
		})
	}
}

// The request of a take is lost, and its caller has given up by then: it is not sent again.
func TestGivingUpALostTake(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.locking(w.Session("a"))
		w.put(q, "one")
		w.Steps(recipetest.Step{Match: isTake, Do: func(*zktest.Request) zktest.Action {
			time.Sleep(2 * time.Second)
			return zktest.Action{Cut: true}
		}})
		if _, err := q.Get(w.Within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
		}
		time.Sleep(5 * time.Second)
		w.nothingTaken()
		w.consume(w.take(q, "one"))
	})
}

// Somebody deletes the hold, and another takes the entry. The first holder can neither consume it nor delete the other's hold.
func TestHoldRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		w.Must(w.Srv.Delete(taken))
		w.Ended(h, queue.ErrLost)
		other := w.take(b, "one")
		w.wantHolds(h, false)
		if err := h.Consume(w.Context()); !errors.Is(err, queue.ErrLost) {
			w.Error(err)
		}
		w.wantHolds(other, true)
		w.consume(other)
	})
}

// Somebody deletes the entry: it can't be consumed, and the hold does not stay.
func TestEntryRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		_, h := w.holding(w.Session("a"))
		w.Must(w.Srv.Delete(entry))
		if err := h.Consume(w.Context()); !errors.Is(err, queue.ErrLost) || !errors.Is(err, session.ErrNoNode) {
			w.Error(err)
		}
		w.nothingTaken()
	})
}

// The session expires under a holder: the entry is free, and the holder can't consume it. If the request was under way, the
// outcome is unknown.
func TestSessionKilledWhileHolding(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		inWorld(t, func(w *world) {
			s := w.Session("a")
			q, h := w.holding(s)
			id := w.ID(s)
			want := queue.ErrLost
			if underWay {
				want = session.ErrUncertain
				w.Steps(recipetest.Step{Match: isMulti, Do: func(*zktest.Request) zktest.Action {
					w.Srv.KillSession(id)
					return zktest.Action{Cut: true}
				}})
			} else {
				w.Srv.KillSession(id)
				w.Ended(h, session.ErrSessionExpired)
				w.wantHolds(h, false)
			}
			if err := h.Consume(w.Context()); !errors.Is(err, want) {
				w.Errorf("got %v, want %v", err, want)
			}
			w.consume(w.take(q, "one"))
		})
	}
}

// Trust ends, and with it the hold's context, but nothing else. Others do not get the entry, and the holder can consume it.
func TestEndOfTrustGivesNothingAway(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		w.Net.Client("a").BlackHole(zktest.Both)
		w.Ended(h, session.ErrTrustLost)
		w.Net.Client("a").Heal()
		time.Sleep(5 * time.Second)
		if _, err := b.TryGet(w.Context()); !errors.Is(err, queue.ErrEmpty) {
			w.Error(err)
		}
		w.consume(h)
		w.wantLen(b, 0)
	})
}

// The caller of Get gives up while its take is under way: nothing stays taken.
func TestGivingUp(t *testing.T) {
	for _, dir := range []zktest.Direction{zktest.ToServer, zktest.ToClient} {
		inWorld(t, func(w *world) {
			q := w.locking(w.Session("a"))
			w.put(q, "one")
			match := isMulti
			if dir == zktest.ToServer {
				match = is(zktest.OpGetData)
			}
			w.Steps(recipetest.Before(match, func() { w.Net.Client("a").BlackHole(dir) }))
			ctx := w.Within(time.Second)
			if _, err := q.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
				w.Error(err)
			}
			w.Net.Client("a").Heal()
			time.Sleep(5 * time.Second)
			w.nothingTaken()
			// The caller of Consume gives up.
			h := w.take(q, "one")
			w.Steps(recipetest.Before(isMulti, func() { w.Net.Client("a").BlackHole(zktest.ToClient) }))
			ctx = w.Within(time.Second)
			if err := h.Consume(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, session.ErrUncertain) {
				w.Error(err)
			}
			w.Net.Client("a").Heal()
			w.consume(h)
			w.wantLen(q, 0)
		})
	}
}

// All consumes the entries at which its body comes to its end, and gives back the others.
func TestAll(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		q := w.locking(s)
		w.put(q, "a", "b", "c", "d", "e")
		var got []string
		note := func(h *queue.Held) string {
			got = append(got, string(h.Value()))
			return got[len(got)-1]
		}
		for h, err := range q.All(w.Context()) {
			w.Must(err)
			switch note(h) {
			case "a":
				continue
			case "b": // the body releases it the first time
				if len(got) == 2 {
					w.Release(h)
				} else {
					w.consume(h)
				}
				continue
			}
			w.wantLen(q, 3)
			break
		}
		func() {
			defer func() { _ = recover() }()
			for h := range q.All(w.Context()) {
				note(h)
				panic("enough")
			}
		}()
		w.nothingTaken()
		// The hold is lost meanwhile: another step follows, with the error.
		ctx := w.Within(time.Minute)
		var errs []error
		for h, err := range q.All(ctx) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if note(h) == "d" && len(errs) == 0 {
				w.Kill(s)
				w.Ended(h, session.ErrSessionExpired)
				w.wantHolds(h, false)
			}
		}
		if !slices.Equal(got, []string{"a", "b", "b", "c", "c", "c", "d", "d", "e"}) {
			w.Errorf("got %q", got)
		}
		if len(errs) != 2 || !errors.Is(errs[0], queue.ErrLost) || !errors.Is(errs[1], context.DeadlineExceeded) {
			w.Errorf("errors %v", errs)
		}
		w.wantLen(q, 0)
	})
}

// A hold keeps the session open until it is released.
func TestSessionWaitsForTheHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		s := must[*session.Session](w)(session.New([]string{zktest.VirtualAddress}, session.Options{Dial: w.Net.Dial}))
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		_, h := w.holding(s)
		cancel()
		time.Sleep(5 * time.Second)
		if h.Context().Err() != nil {
			w.Error(context.Cause(h.Context()))
		}
		w.consume(h)
		w.Check(<-done)
		if left := w.Srv.Children(path + "/entries"); len(left) != 0 {
			w.Errorf("left: %q", left)
		}
	})
}
