package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The cases of kazoo's test_queue.py, for Queue.

// A call that is a TypeError in Python does not compile here.
func TestQueueValidation(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		for _, q := range []putter{w.queue(s), w.locking(s)} {
			for _, priority := range []int{-100, -1, 1000, 100000} {
				if _, err := q.Put(w.Context(), []byte("one"), priority); !errors.Is(err, queue.ErrPriority) {
					w.Errorf("%d: %v", priority, err)
				}
				if _, err := q.PutAll(w.Context(), [][]byte{[]byte("one")}, priority); !errors.Is(err, queue.ErrPriority) {
					w.Errorf("%d: %v", priority, err)
				}
			}
			if _, err := q.Put(w.Context(), make([]byte, 2<<20), 0); !errors.Is(err, session.ErrTooLarge) {
				w.Errorf("large: %v", err)
			}
			if _, err := q.PutAll(w.Context(), slices.Repeat([][]byte{make([]byte, 1<<10)}, 1<<10), 0); !errors.Is(err, session.ErrTooLarge) {
				w.Errorf("large together: %v", err)
			}
			if paths, err := q.PutAll(w.Context(), nil, 0); err != nil || len(paths) != 0 {
				w.Errorf("nothing: %q, %v", paths, err)
			}
			w.wantLen(q, 0)
		}
		if _, _, ok := w.Srv.Get("/app"); ok {
			w.Error("something was created")
		}
		_, err := queue.New(nil, path, queue.Options{})
		_, err2 := queue.NewLocking(s, "a", queue.Options{})
		if err == nil || err2 == nil {
			w.Error("no error")
		}
	})
}

func TestQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.queue(w.Session("a"))
		w.put(q, "one")
		paths, err := q.PutAll(w.Context(), [][]byte{[]byte("two"), nil}, 100)
		if err != nil || !slices.Equal(paths, []string{path + "/entry-100-0000000001", path + "/entry-100-0000000002"}) {
			w.Errorf("%q, %v", paths, err)
		}
		data, stat, ok := w.Srv.Get(path + "/entry-100-0000000000")
		if string(data) != "one" || stat.EphemeralOwner != 0 || !ok {
			w.Errorf("%q, %+v", data, stat)
		}
		if data, _, _ := w.Srv.Get(paths[1]); data == nil || len(data) != 0 {
			w.Errorf("%#v", data)
		}
		w.wantLen(q, 3)
		for _, want := range []string{"one", "two", ""} {
			value, err := q.Get(w.Context())
			w.wantValue(value, err, want, nil)
			if value == nil {
				w.Error("nil")
			}
		}
		w.wantLen(q, 0)
	})
}

// An entry of a better priority comes first although others were listed before. (kazoo keeps its list.)
func TestPriorityOfLaterEntries(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.queue(w.Session("a"))
		w.put(q, "a", "b")
		value, err := q.Get(w.Context())
		w.wantValue(value, err, "a", nil)
		if _, err := q.Put(w.Context(), []byte("urgent"), 1); err != nil {
			w.Fatal(err)
		}
		value, err = q.Get(w.Context())
		w.wantValue(value, err, "urgent", nil)
	})
}

// Get does not take children that are no entries, and they do not block it; Len counts them.
func TestForeignChildren(t *testing.T) {
	kinds(t, func(w *world, entries string, of func(s *session.Session) taker) {
		q := of(w.Session("a"))
		w.Must(w.Srv.Create(entries+"/a/b", []byte("foreign")))
		if _, err := q.next(w.Context()); !errors.Is(err, queue.ErrEmpty) {
			w.Error(err)
		}
		w.put(q, "one")
		w.wantLen(q, 2)
		w.takes(q, "one")
		if _, _, ok := w.Srv.Get(entries + "/a/b"); !ok {
			w.Error("it is gone")
		}
	})
}

// A put wakes a Get that waits, also after links broke, the session expired and the directory was deleted.
func TestGetWaits(t *testing.T) {
	for what, do := range map[string]func(w *world, s *session.Session){
		"nothing": func(*world, *session.Session) {},
		"cut":     func(w *world, _ *session.Session) { w.Net.Client("a").Cut() },
		"killed":  func(w *world, s *session.Session) { w.Kill(s) },
		"deleted": func(w *world, _ *session.Session) {
			w.Check(w.Srv.Delete("/app"))
		},
	} {
		inWorld(t, func(w *world) {
			s := w.Session("a")
			got := make(chan string, 2)
			go func() {
				value, err := w.queue(s).Get(w.Context())
				if err != nil {
					w.Errorf("%s: %v", what, err)
				}
				got <- string(value)
			}()
			go func() {
				h, err := must[*queue.LockingQueue](w)(queue.NewLocking(s, path+"/l", queue.Options{})).Get(w.Context())
				if err != nil {
					w.Errorf("%s: %v", what, err)
					got <- ""
					return
				}
				got <- string(h.Value())
				_ = h.Release(w.Context())
			}()
			time.Sleep(5 * time.Second)
			do(w, s)
			time.Sleep(30 * time.Second)
			if len(got) > 0 {
				w.Fatalf("%s: got %q", what, <-got)
			}
			other := w.Session("b")
			w.put(w.queue(other), "x")
			w.put(must[*queue.LockingQueue](w)(queue.NewLocking(other, path+"/l", queue.Options{})), "x")
			start := time.Now()
			if a, b := <-got, <-got; a != "x" || b != "x" || time.Since(start) > time.Second {
				w.Errorf("%s: got %q and %q after %v", what, a, b, time.Since(start))
			}
		})
	}
}

// An entry is put while the link of a Get that waits is down: the Get finds it once there is a link again.
func TestPutWhileDisconnected(t *testing.T) {
	inWorld(t, func(w *world) {
		s, other := w.Session("a"), w.Session("b")
		id := w.ID(s)
		plain := recipetest.Later(func() ([]byte, error) { return w.queue(s).Get(w.Context()) })
		l := must[*queue.LockingQueue](w)(queue.NewLocking(s, path+"/l", queue.Options{}))
		locking := recipetest.AcquireLater(w.Context(), w, l.Get)
		time.Sleep(time.Second)
		client := w.Unplug("a")
		w.put(w.queue(other), "x")
		w.put(must[*queue.LockingQueue](w)(queue.NewLocking(other, path+"/l", queue.Options{})), "y")
		time.Sleep(time.Second)
		if plain.Ended() || locking.Ended() {
			w.Errorf("got without a connection: %q, %v, and %v", plain.Value, plain.Err, locking.Err)
		}
		client.Heal()
		if x, y := plain.Get(w), locking.Get(w).Value(); string(x) != "x" || string(y) != "y" {
			w.Errorf("got %q and %q", x, y)
		}
		if w.ID(s) != id {
			w.Error("the session is another: nothing was tested")
		}
	})
}

// The reply to a put is lost: the put is not repeated.
func TestLostPut(t *testing.T) {
	for _, lost := range []zktest.Action{{LoseReply: true}, {Cut: true}} {
		inWorld(t, func(w *world) {
			q := w.queue(w.Session("a"))
			w.put(q, "before")
			w.Steps(recipetest.Meets(lost, isPut))
			if _, err := q.Put(w.Context(), []byte("x"), 100); !errors.Is(err, session.ErrUncertain) || !strings.Contains(err.Error(), path) {
				w.Error(err)
			}
			n := 1
			if lost.LoseReply {
				n = 2
			}
			w.wantLen(q, n)
			w.Steps(recipetest.Meets(lost, isPut))
			if _, err := q.PutAll(w.Context(), [][]byte{{1}, {2}}, 100); !errors.Is(err, session.ErrUncertain) {
				w.Error(err)
			}
			if lost.LoseReply {
				n = 4
			}
			w.wantLen(q, n)
		})
	}
}

// The reply to Get's delete is lost. If the server carried it out, Get returns the value with the error. If not, and the same
// entry still exists, Get deletes it again; it does not delete another entry of that name.
func TestLostRemoval(t *testing.T) {
	for what, tt := range map[string]struct {
		lost   zktest.Action
		reused bool
		want   error
		left   string
	}{
		"reply":              {zktest.Action{LoseReply: true}, false, session.ErrUncertain, ""},
		"request":            {zktest.Action{Cut: true}, false, nil, ""},
		"reply, name reused": {zktest.Action{LoseReply: true}, true, session.ErrUncertain, "other"},
	} {
		inWorld(t, func(w *world) {
			q := w.queue(w.Session("a"))
			w.put(q, "x")
			steps := []recipetest.Step{recipetest.Meets(tt.lost, is(zktest.OpDelete))}
			if tt.reused {
				reuse := func() { w.Check(w.Srv.Create(path+"/entry-100-0000000000", []byte("other"))) }
				steps = append(steps, recipetest.Before(is(zktest.OpSync), reuse))
			}
			w.Steps(steps...)
			value, err := q.Get(w.Context())
			w.wantValue(value, err, "x", tt.want)
			if w.Failed() {
				w.Fatal(what)
			}
			value, err = q.TryGet(w.Context())
			if tt.left == "" {
				w.wantValue(value, err, "", queue.ErrEmpty)
			} else {
				w.wantValue(value, err, tt.left, nil)
			}
		})
	}
}

// Without a connection every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		s := w.Session("a")
		q, l := w.queue(s), w.locking(s)
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Put":            func(ctx context.Context) error { _, err := q.Put(ctx, nil, 1); return err },
			"PutAll":         func(ctx context.Context) error { _, err := l.PutAll(ctx, [][]byte{nil}, 1); return err },
			"Get":            func(ctx context.Context) error { _, err := q.Get(ctx); return err },
			"TryGet":         func(ctx context.Context) error { _, err := q.TryGet(ctx); return err },
			"Len":            func(ctx context.Context) error { _, err := q.Len(ctx); return err },
			"locking Get":    func(ctx context.Context) error { _, err := l.Get(ctx); return err },
			"locking TryGet": func(ctx context.Context) error { _, err := l.TryGet(ctx); return err },
			"locking Len":    func(ctx context.Context) error { _, err := l.Len(ctx); return err },
			"All": func(ctx context.Context) (err error) {
				for _, err = range l.All(ctx) {
					continue
				}
				return err
			},
		})
	})
}

// Close to the end of the numbers a handle puts no more; at the end no handle does.
func TestSequenceExhausted(t *testing.T) {
	for seq, tt := range map[string]struct{ first, second error }{
		"2146435071": {nil, nil},
		"2146435072": {nil, queue.ErrSequenceExhausted},
		"-000000001": {nil, queue.ErrSequenceExhausted},
		"2147483647": {queue.ErrSequenceExhausted, queue.ErrSequenceExhausted},
	} {
		inWorld(t, func(w *world) {
			q := w.queue(w.Session("a"))
			w.Must(w.Srv.Create(path+"/entry-100-2147483647", nil))
			w.Steps(recipetest.Step{Match: isPut, Do: func(r *zktest.Request) zktest.Action {
				r.Ops[0].Flags, r.Ops[0].Path = 0, r.Ops[0].Path+seq
				return zktest.Action{}
			}})
			if _, err := q.Put(w.Context(), []byte("x"), 100); !errors.Is(err, tt.first) {
				w.Errorf("%s: %v", seq, err)
			}
			if _, err := q.Put(w.Context(), []byte("y"), 100); !errors.Is(err, tt.second) {
				w.Errorf("%s: %v", seq, err)
			}
		})
	}
}
