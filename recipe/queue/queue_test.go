package queue_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The cases of kazoo's test_queue.py, for Queue.

// A call that is a TypeError in Python does not compile here.
func TestQueueValidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		for _, q := range []putter{w.queue(s), w.locking(s)} {
			for _, priority := range []int{-100, -1, 1000, 100000} {
				if _, err := q.Put(t.Context(), []byte("one"), priority); !errors.Is(err, queue.ErrPriority) {
					t.Errorf("%d: %v", priority, err)
				}
				if _, err := q.PutAll(t.Context(), [][]byte{[]byte("one")}, priority); !errors.Is(err, queue.ErrPriority) {
					t.Errorf("%d: %v", priority, err)
				}
			}
			if _, err := q.Put(t.Context(), make([]byte, 2<<20), 0); !errors.Is(err, session.ErrTooLarge) {
				t.Errorf("large: %v", err)
			}
			if _, err := q.PutAll(t.Context(), slices.Repeat([][]byte{make([]byte, 1<<10)}, 1<<10), 0); !errors.Is(err, session.ErrTooLarge) {
				t.Errorf("large together: %v", err)
			}
			if paths, err := q.PutAll(t.Context(), nil, 0); err != nil || len(paths) != 0 {
				t.Errorf("nothing: %q, %v", paths, err)
			}
			w.wantLen(q, 0)
		}
		if _, _, ok := w.Srv.Get("/app"); ok {
			t.Error("something was created")
		}
		_, err := queue.New(nil, path, queue.Options{})
		_, err2 := queue.NewLocking(s, "a", queue.Options{})
		if err == nil || err2 == nil {
			t.Error("no error")
		}
	})
}

func TestEmptyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.queue(w.Session("a"))
		w.wantLen(q, 0)
		value, err := q.TryGet(t.Context())
		w.wantValue(value, err, "", queue.ErrEmpty)
		w.wantLen(q, 0)
	})
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.queue(w.Session("a"))
		w.put(q, "one")
		paths, err := q.PutAll(t.Context(), [][]byte{[]byte("two"), nil}, 100)
		if err != nil || !slices.Equal(paths, []string{path + "/entry-100-0000000001", path + "/entry-100-0000000002"}) {
			t.Errorf("%q, %v", paths, err)
		}
		data, stat, ok := w.Srv.Get(path + "/entry-100-0000000000")
		if string(data) != "one" || stat.EphemeralOwner != 0 || !ok {
			t.Errorf("%q, %+v", data, stat)
		}
		if data, _, _ := w.Srv.Get(paths[1]); data == nil || len(data) != 0 {
			t.Errorf("%#v", data)
		}
		w.wantLen(q, 3)
		for _, want := range []string{"one", "two", ""} {
			value, err := q.Get(t.Context())
			w.wantValue(value, err, want, nil)
			if value == nil {
				t.Error("nil")
			}
		}
		w.wantLen(q, 0)
	})
}

func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.queue(w.Session("a"))
		putFour(w, q)
		for _, want := range []string{"one", "two", "three", "four"} {
			value, err := q.TryGet(t.Context())
			w.wantValue(value, err, want, nil)
		}
	})
}

func putFour(w *world, q putter) {
	w.Helper()
	for _, e := range []struct {
		value    string
		priority int
	}{{"four", 101}, {"one", 0}, {"two", 0}, {"three", 10}} {
		if _, err := q.Put(w.Context(), []byte(e.value), e.priority); err != nil {
			w.Fatal(err)
		}
	}
}

// An entry of a better priority comes first although others were listed before. (kazoo keeps its list.)
func TestPriorityOfLaterEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.queue(w.Session("a"))
		w.put(q, "a", "b")
		value, err := q.Get(t.Context())
		w.wantValue(value, err, "a", nil)
		if _, err := q.Put(t.Context(), []byte("urgent"), 1); err != nil {
			t.Fatal(err)
		}
		value, err = q.Get(t.Context())
		w.wantValue(value, err, "urgent", nil)
	})
}

// Get does not take children that are no entries, and they do not block it; Len counts them.
func TestForeignChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.queue(w.Session("a"))
		if err := w.Srv.Create(path+"/a/b", []byte("foreign")); err != nil {
			t.Fatal(err)
		}
		if _, err := q.TryGet(t.Context()); !errors.Is(err, queue.ErrEmpty) {
			t.Error(err)
		}
		w.put(q, "one")
		w.wantLen(q, 2)
		value, err := q.Get(t.Context())
		w.wantValue(value, err, "one", nil)
		if _, _, ok := w.Srv.Get(path + "/a/b"); !ok {
			t.Error("it is gone")
		}
	})
}

// A put wakes a Get that waits, also after links broke, the session expired and the directory was deleted.
func TestGetWaits(t *testing.T) {
	for what, do := range map[string]func(w *world, s *session.Session){
		"nothing": func(*world, *session.Session) {},
		"cut":     func(w *world, _ *session.Session) { w.Net.Client("a").Cut() },
		"killed":  func(w *world, s *session.Session) { w.Srv.KillSession(w.ID(s)) },
		"deleted": func(w *world, _ *session.Session) {
			if err := w.Srv.Delete("/app"); err != nil {
				w.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := w.Session("a")
			got := make(chan string, 2)
			go func() {
				value, err := w.queue(s).Get(t.Context())
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				got <- string(value)
			}()
			go func() {
				h, err := must[*queue.LockingQueue](w)(queue.NewLocking(s, path+"/l", queue.Options{})).Get(t.Context())
				if err != nil {
					t.Errorf("%s: %v", what, err)
					got <- ""
					return
				}
				got <- string(h.Value())
				_ = h.Release(t.Context())
			}()
			time.Sleep(5 * time.Second)
			do(w, s)
			time.Sleep(30 * time.Second)
			if len(got) > 0 {
				t.Fatalf("%s: got %q", what, <-got)
			}
			other := w.Session("b")
			w.put(w.queue(other), "x")
			w.put(must[*queue.LockingQueue](w)(queue.NewLocking(other, path+"/l", queue.Options{})), "x")
			start := time.Now()
			if a, b := <-got, <-got; a != "x" || b != "x" || time.Since(start) > time.Second {
				t.Errorf("%s: got %q and %q after %v", what, a, b, time.Since(start))
			}
		})
	}
}

// The reply to a put is lost: the put is not repeated.
func TestLostPut(t *testing.T) {
	for _, lost := range []zktest.Action{{LoseReply: true}, {Cut: true}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			q := w.queue(w.Session("a"))
			w.put(q, "before")
			isPut := func(r zktest.Request) bool {
				return r.Op == zktest.OpMulti && len(r.Ops) > 0 && r.Ops[0].Op == zktest.OpCreate
			}
			w.once(isPut, func(*zktest.Request) zktest.Action { return lost })
			if _, err := q.Put(t.Context(), []byte("x"), 100); !errors.Is(err, session.ErrUncertain) || !strings.Contains(err.Error(), path) {
				t.Error(err)
			}
			n := 1
			if lost.LoseReply {
				n = 2
			}
			w.wantLen(q, n)
			w.once(isPut, func(*zktest.Request) zktest.Action { return lost })
			if _, err := q.PutAll(t.Context(), [][]byte{{1}, {2}}, 100); !errors.Is(err, session.ErrUncertain) {
				t.Error(err)
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
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			q := w.queue(w.Session("a"))
			w.put(q, "x")
			w.once(is(zktest.OpDelete), func(r *zktest.Request) zktest.Action {
				if tt.reused {
					entry := r.Path
					w.once(is(zktest.OpSync), func(*zktest.Request) zktest.Action {
						if err := w.Srv.Create(entry, []byte("other")); err != nil {
							t.Error(err)
						}
						return zktest.Action{}
					})
				}
				return tt.lost
			})
			value, err := q.Get(t.Context())
			w.wantValue(value, err, "x", tt.want)
			value, err = q.TryGet(t.Context())
			if tt.left == "" {
				w.wantValue(value, err, "", queue.ErrEmpty)
			} else {
				w.wantValue(value, err, tt.left, nil)
			}
			_ = what
		})
	}
}

// Without a connection every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Net.Refuse()
		s := w.Session("a")
		q, l := w.queue(s), w.locking(s)
		recipetest.EndWithTheirContext(t, path, map[string]func(context.Context) error{
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
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			q := w.queue(w.Session("a"))
			if err := w.Srv.Create(path+"/entry-100-2147483647", nil); err != nil {
				t.Fatal(err)
			}
			w.once(func(r zktest.Request) bool {
				return r.Op == zktest.OpMulti && len(r.Ops) > 0 && r.Ops[0].Op == zktest.OpCreate
			},
				func(r *zktest.Request) zktest.Action {
					r.Ops[0].Flags, r.Ops[0].Path = 0, r.Ops[0].Path+seq
					return zktest.Action{}
				})
			if _, err := q.Put(t.Context(), []byte("x"), 100); !errors.Is(err, tt.first) {
				t.Errorf("%s: %v", seq, err)
			}
			if _, err := q.Put(t.Context(), []byte("y"), 100); !errors.Is(err, tt.second) {
				t.Errorf("%s: %v", seq, err)
			}
		})
	}
}

// The caller may change the value that a Held returned.
func TestValuesAreCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.locking(w.Session("a"))
		w.put(q, "abc")
		h := w.take(q, "abc")
		h.Value()[0] = 'x'
		if !bytes.Equal(h.Value(), []byte("abc")) {
			t.Errorf("%q", h.Value())
		}
	})
}
