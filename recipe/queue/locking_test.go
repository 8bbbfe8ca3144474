package queue_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

func TestEmptyLockingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.locking(w.Session("a"))
		w.wantLen(q, 0)
		if _, err := q.TryGet(t.Context()); !errors.Is(err, queue.ErrEmpty) {
			t.Error(err)
		}
		w.wantLen(q, 0)
	})
}

func TestLockingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		q := w.locking(s)
		w.put(q, "one")
		if _, err := q.PutAll(t.Context(), [][]byte{[]byte("two"), []byte("three")}, 100); err != nil {
			t.Fatal(err)
		}
		w.wantLen(q, 3)
		for _, want := range []string{"one", "two", "three"} {
			h := w.take(q, want)
			w.wantHolds(h, true)
			if string(h.Value()) != want {
				t.Errorf("a second time: %q", h.Value())
			}
			w.consume(h)
			w.wantHolds(h, false)
			w.ended(h, queue.ErrConsumed)
			w.consume(h) // a second time: the same outcome
		}
		w.wantLen(q, 0)
		if n := len(w.Srv.Children(path + "/taken")); n != 0 {
			t.Errorf("%d are taken", n)
		}
	})
}

func TestConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		q, h := w.holding(s)
		id, stat, _ := w.Srv.Get(taken)
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).Match(id) || stat.EphemeralOwner != w.ID(s) || h.Token() != stat.Czxid || h.Node() != taken || h.Path() != entry {
			t.Errorf("%s: %q, %+v; %s", h.Node(), id, stat, h.Path())
		}
		w.release(h)
		again := w.take(q, "one")
		if other, _, _ := w.Srv.Get(taken); string(other) == string(id) || again.Token() <= h.Token() {
			t.Errorf("id %q after %q, token %d after %d", other, id, again.Token(), h.Token())
		}
		w.consume(again)
		if err := again.Release(t.Context()); !errors.Is(err, queue.ErrConsumed) {
			t.Error(err)
		}
	})
}

func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q, h := w.holding(w.Session("a"))
		w.wantHolds(h, true)
		w.release(h)
		w.wantHolds(h, false)
		w.ended(h, queue.ErrReleased)
		if err := h.Consume(t.Context()); !errors.Is(err, queue.ErrReleased) {
			t.Error(err)
		}
		w.release(h)
		w.consume(w.take(q, "one"))
		w.wantLen(q, 0)
	})
}

func TestHoldsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		_, h := w.holding(s)
		w.wantHolds(h, true)
		w.Srv.KillSession(w.ID(s))
		w.ended(h, session.ErrSessionExpired)
		w.wantHolds(h, false)
	})
}

func TestLockingPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.locking(w.Session("a"))
		putFour(w, q)
		for _, want := range []string{"one", "two", "three", "four"} {
			w.consume(w.take(q, want))
		}
	})
}

func TestConcurrentExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		results := make(chan error, 3)
		for _, name := range []string{"a", "b", "c"} {
			q := w.locking(w.Session(name))
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				h, err := q.Get(ctx)
				if err == nil {
					defer func() { _ = h.Release(t.Context()) }()
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
				t.Error(err)
			}
		}
		if count != 1 {
			t.Errorf("%d got it", count)
		}
	})
}

// Several entries are held at once, each by one getter; a getter that waits gets the entry that another gives back.
func TestTheNextFreeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one", "two")
		first, second := w.take(a, "one"), w.take(b, "two")
		if _, err := b.TryGet(t.Context()); !errors.Is(err, queue.ErrEmpty) {
			t.Error(err)
		}
		got := make(chan *queue.Held)
		go func() { got <- w.take(b, "one") }()
		time.Sleep(20 * time.Second)
		w.release(first)
		w.consume(<-got)
		w.consume(second)
		w.wantLen(a, 0)
	})
}

// Another takes the first entry just before: Get tries the next one.
func TestTakenJustBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.locking(w.Session("a"))
		w.put(q, "one", "two")
		w.once(isMulti, func(r *zktest.Request) zktest.Action {
			if err := w.Srv.Create(r.Ops[1].Path, nil); err != nil {
				t.Error(err)
			}
			return zktest.Action{}
		})
		h, err := q.TryGet(t.Context())
		if err != nil || string(h.Value()) != "two" {
			t.Fatal(err)
		}
		w.release(h)
	})
}

// The request of a take, a release or a consume is lost, or its reply. All of them return, and no znode is left.
func TestLostReplies(t *testing.T) {
	for what, match := range map[string]func(zktest.Request) bool{
		"take":    func(r zktest.Request) bool { return isMulti(r) && r.Ops[1].Op == zktest.OpCreate },
		"release": is(zktest.OpDelete),
		"consume": func(r zktest.Request) bool { return isMulti(r) && r.Ops[1].Op == zktest.OpDelete },
	} {
		for _, lost := range []zktest.Action{{LoseReply: true}, {Cut: true}} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				q := w.locking(w.Session("a"))
				w.put(q, "one")
				w.once(match, func(*zktest.Request) zktest.Action { return lost })
				w.release(w.take(q, "one"))
				if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
					t.Errorf("%s: left: %q", what, left)
				}
				w.consume(w.take(q, "one"))
				w.wantLen(q, 0)
				if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
					t.Errorf("%s: left: %q", what, left)
				}
			})
		}
	}
}

// Somebody deletes the hold, and another takes the entry. The first holder can neither consume it nor delete the other's hold.
func TestHoldRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		if err := w.Srv.Delete(taken); err != nil {
			t.Fatal(err)
		}
		w.ended(h, queue.ErrLost)
		other := w.take(b, "one")
		w.wantHolds(h, false)
		if err := h.Consume(t.Context()); !errors.Is(err, queue.ErrLost) {
			t.Error(err)
		}
		w.wantHolds(other, true)
		w.consume(other)
	})
}

// Somebody deletes the entry: it can't be consumed, and the hold does not stay.
func TestEntryRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, h := w.holding(w.Session("a"))
		if err := w.Srv.Delete(entry); err != nil {
			t.Fatal(err)
		}
		if err := h.Consume(t.Context()); !errors.Is(err, queue.ErrLost) || !errors.Is(err, session.ErrNoNode) {
			t.Error(err)
		}
		if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
	})
}

// The session expires under a holder: the entry is free, and the holder can't consume it. If the request was under way, the
// outcome is unknown.
func TestSessionKilledWhileHolding(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := w.Session("a")
			q, h := w.holding(s)
			id := w.ID(s)
			want := queue.ErrLost
			if underWay {
				want = session.ErrUncertain
				w.once(isMulti, func(*zktest.Request) zktest.Action {
					w.Srv.KillSession(id)
					return zktest.Action{Cut: true}
				})
			} else {
				w.Srv.KillSession(id)
				w.ended(h, session.ErrSessionExpired)
			}
			if err := h.Consume(t.Context()); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			w.consume(w.take(q, "one"))
		})
	}
}

// Trust ends, and with it the hold's context, but nothing else. Others do not get the entry, and the holder can consume it.
func TestEndOfTrustGivesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		w.Net.Client("a").BlackHole(zktest.Both)
		w.ended(h, session.ErrTrustLost)
		w.Net.Client("a").Heal()
		time.Sleep(5 * time.Second)
		if _, err := b.TryGet(t.Context()); !errors.Is(err, queue.ErrEmpty) {
			t.Error(err)
		}
		w.consume(h)
		w.wantLen(b, 0)
	})
}

// The caller of Get gives up while its take is under way: nothing stays taken.
func TestGivingUp(t *testing.T) {
	for _, dir := range []zktest.Direction{zktest.ToServer, zktest.ToClient} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			q := w.locking(w.Session("a"))
			w.put(q, "one")
			match := isMulti
			if dir == zktest.ToServer {
				match = is(zktest.OpGetData)
			}
			w.once(match, func(*zktest.Request) zktest.Action {
				w.Net.Client("a").BlackHole(dir)
				return zktest.Action{}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := q.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			w.Net.Client("a").Heal()
			time.Sleep(5 * time.Second)
			if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
			// The caller of Consume gives up.
			h := w.take(q, "one")
			w.once(isMulti, func(*zktest.Request) zktest.Action {
				w.Net.Client("a").BlackHole(zktest.ToClient)
				return zktest.Action{}
			})
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := h.Consume(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, session.ErrUncertain) {
				t.Error(err)
			}
			w.Net.Client("a").Heal()
			w.consume(h)
			w.wantLen(q, 0)
		})
	}
}

// All consumes the entries at which its body comes to its end, and gives back the others.
func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		q := w.locking(s)
		w.put(q, "a", "b", "c", "d", "e")
		var got []string
		note := func(h *queue.Held) string {
			got = append(got, string(h.Value()))
			return got[len(got)-1]
		}
		for h, err := range q.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			switch note(h) {
			case "a":
				continue
			case "b": // the body releases it the first time
				if len(got) == 2 {
					w.release(h)
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
			for h := range q.All(t.Context()) {
				note(h)
				panic("enough")
			}
		}()
		if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
		// The hold is lost meanwhile: another step follows, with the error.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var errs []error
		for h, err := range q.All(ctx) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if note(h) == "d" && len(errs) == 0 {
				w.Srv.KillSession(w.ID(s))
				w.ended(h, session.ErrSessionExpired)
			}
		}
		if !slices.Equal(got, []string{"a", "b", "b", "c", "c", "c", "d", "d", "e"}) {
			t.Errorf("got %q", got)
		}
		if len(errs) != 2 || !errors.Is(errs[0], queue.ErrLost) || !errors.Is(errs[1], context.DeadlineExceeded) {
			t.Errorf("errors %v", errs)
		}
		w.wantLen(q, 0)
	})
}

// A hold keeps the session open until it is released.
func TestSessionWaitsForTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := must[*session.Session](w)(session.New([]string{zktest.VirtualAddress}, session.Options{Dial: w.Net.Dial}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		_, h := w.holding(s)
		cancel()
		time.Sleep(5 * time.Second)
		if h.Context().Err() != nil {
			t.Error(context.Cause(h.Context()))
		}
		w.consume(h)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if left := w.Srv.Children(path + "/entries"); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
	})
}
