package counter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func (w *world) counter(s *session.Session) *counter.Counter[int64] {
	w.Helper()
	return must[*counter.Counter[int64]](w)(counter.New(s, path, counter.Options[int64]{}))
}

// onSet calls a function at the first write of the number.
func (w *world) onSet(do func() zktest.Action) {
	w.Steps(recipetest.Step{Match: is(zktest.OpSetData), Do: func(*zktest.Request) zktest.Action { return do() }})
}

// The write was not carried out, and nobody else wrote: it is repeated.
func TestLostRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "5")
		c := w.counter(w.Session("a"))
		w.Steps(recipetest.Meets(zktest.Action{Cut: true}, is(zktest.OpSetData)))
		if v, err := c.Add(w.Context(), 1); err != nil || v != 6 || w.Data(path) != "6" {
			w.Errorf("got %d, %v, %q", v, err, w.Data(path))
		}
	})
}

// The write was carried out and its reply lost: it is not repeated.
func TestLostReply(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "5")
		c := w.counter(w.Session("a"))
		w.Srv.LoseReply(1, is(zktest.OpSetData))
		if v, err := c.Add(w.Context(), 1); !errors.Is(err, session.ErrUncertain) || w.Data(path) != "6" {
			w.Errorf("got %d, %v, %q", v, err, w.Data(path))
		}
	})
}

// Just before the write another process changes the number, or somebody deletes the znode: the change is made to what is there.
func TestChangedBeforeTheWrite(t *testing.T) {
	for want, happens := range map[string]func(w *world) error{
		"11": func(w *world) error { return w.Srv.Set(path, []byte("10")) },
		"1":  func(w *world) error { return w.Srv.Delete(path) },
	} {
		inWorld(t, func(w *world) {
			w.Write(path, "2")
			c := w.counter(w.Session("a"))
			w.Steps(recipetest.Before(is(zktest.OpSetData), func() { w.Check(happens(w)) }))
			v, err := c.Add(w.Context(), 1)
			if last, ok := c.Last(); err != nil || w.Data(path) != want || !ok || last.Post != v || last.Pre != v-1 {
				w.Errorf("got %d, %v, %q, want %s; last %+v", v, err, w.Data(path), want, last)
			}
		})
	}
}

// The caller gives up while the znode is being created: the number did not change.
func TestGivingUpDuringTheCreate(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.counter(w.Session("a"))
		w.Steps(recipetest.Before(is(zktest.OpCreate), func() { w.Net.Client("a").BlackHole(zktest.ToClient) }))
		_, err := c.Add(w.Within(time.Second), 1)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, session.ErrUncertain) {
			w.Error(err)
		}
		w.Net.Client("a").Heal()
	})
}

// The znode is deleted and created again with the version that was read, while the reply is missing: it is another znode.
func TestSameVersionOfAnotherZnode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(path, []byte("5")))
		c := w.counter(w.Session("a"))
		w.onSet(func() zktest.Action {
			w.Check(w.Srv.Delete(path))
			w.Check(w.Srv.Create(path, []byte("5")))
			return zktest.Action{Cut: true}
		})
		if v, err := c.Add(w.Context(), 1); !errors.Is(err, session.ErrUncertain) || w.Data(path) != "5" {
			w.Errorf("got %d, %v, %q", v, err, w.Data(path))
		}
	})
}

// The znode is deleted and created again, with the version that was read, before the first or the second write arrives: the write
// replaces a number that was not read.
func TestWrittenToAnotherZnode(t *testing.T) {
	for name, second := range map[string]bool{"first": false, "second": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Must(w.Srv.Create(path, []byte("57")))
				c := w.counter(w.Session("a"))
				writes := 0
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op != zktest.OpSetData {
						return zktest.Action{}
					}
					if writes++; second && writes == 1 {
						return zktest.Action{Cut: true}
					}
					w.Check(errors.Join(w.Srv.Delete(path), w.Srv.Create(path, []byte("5"))))
					return zktest.Action{}
				})
				if v, err := c.Add(w.Context(), 1); !errors.Is(err, session.ErrUncertain) {
					w.Errorf("got %d, %v, %q", v, err, w.Data(path))
				}
				if last, ok := c.Last(); ok {
					w.Errorf("last: %+v", last)
				}
			})
		})
	}
}

// ending is a context of which Err, but not Done, says that it has ended.
type ending struct {
	context.Context
	ended atomic.Bool
}

func (e *ending) Err() error {
	if e.ended.Load() {
		return errEnough
	}
	return e.Context.Err()
}

var errEnough = errors.New("enough")

// The context ends in the moment in which a change of another process makes Add fail: the error is the context's.
func TestContextEndsWithTheReply(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "5")
		c := w.counter(w.Session("a"))
		ctx := &ending{Context: w.Context()}
		w.onSet(func() zktest.Action {
			ctx.ended.Store(true)
			return zktest.Action{Err: zktest.ErrBadVersion}
		})
		_, err := c.Add(ctx, 1)
		if !errors.Is(err, errEnough) || errors.Is(err, session.ErrBadVersion) {
			w.Error(err)
		}
	})
}

// The caller gives up while its write is under way.
func TestGivingUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "5")
		c := w.counter(w.Session("a"))
		w.onSet(func() zktest.Action {
			w.Net.Client("a").BlackHole(zktest.ToClient)
			return zktest.Action{}
		})
		_, err := c.Add(w.Within(time.Second), 1)
		if !errors.Is(err, session.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
		}
		w.Net.Client("a").Heal()
	})
}

// The session expires before the number was read: it is read in the next one.
func TestSessionKilledBeforeTheRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "5")
		s := w.Session("a")
		c, ctx := w.counter(s), w.Context()
		for what, call := range map[string]func() (int64, error){
			"get": func() (int64, error) { return c.Get(ctx) },
			"add": func() (int64, error) { return c.Add(ctx, 0) },
		} {
			id := w.ID(s)
			w.Steps(recipetest.Step{Match: is(zktest.OpGetData), Do: func(*zktest.Request) zktest.Action {
				w.Srv.KillSession(id)
				return zktest.Action{Cut: true}
			}})
			if v, err := call(); err != nil || v != 5 || w.ID(s) == id {
				w.Errorf("%s: got %d, %v", what, v, err)
			}
		}
	})
}

// The session expires between the write and the check after it.
func TestSessionKilled(t *testing.T) {
	for _, written := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.Write(path, "5")
			s := w.Session("a")
			c, id := w.counter(s), w.ID(s)
			w.onSet(func() zktest.Action {
				if written {
					w.Write(path, "6")
				}
				w.Srv.KillSession(id)
				return zktest.Action{Cut: true}
			})
			v, err := c.Add(w.Context(), 1)
			if w.Data(path) != "6" || (err == nil) == written || written != errors.Is(err, session.ErrUncertain) {
				w.Errorf("written %v: got %d, %v, %q", written, v, err, w.Data(path))
			}
			if w.ID(s) == id {
				w.Error("the session is the same")
			}
		})
	}
}
