package barrier_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A Wait that lasts for long logs that.
func TestLongWaitAtABarrierIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		b, err := barrier.New(w.Session("waiter"), path, barrier.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Srv.Create(path, nil); err != nil {
			t.Fatal(err)
		}
		waiting := w.later(func() error { return b.Wait(t.Context()) })
		time.Sleep(5 * time.Minute) // logged after half a minute, 1, 2 and 4 minutes
		synctest.Wait()
		if said := strings.Count(log.String(), "still waiting"); said != 4 || !strings.Contains(log.String(), "blocker.path="+path) {
			t.Errorf("said %d times, want 4:\n%s", said, &log)
		}
		if err := w.Srv.Delete(path); err != nil {
			t.Fatal(err)
		}
		w.ended(waiting, nil)
	})
}

// A Leave that lasts for long logs which member it waits for, and an Enter which znode of its name.
func TestLongWaitIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		d, err := barrier.NewDouble(w.Session("waiter"), path, 2, barrier.DoubleOptions{
			Identifier: "waiter", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		said := func(blocker, data string) {
			t.Helper()
			time.Sleep(5 * time.Minute) // logged after half a minute, 1, 2 and 4 minutes
			synctest.Wait()
			if said := strings.Count(log.String(), "still waiting"); said != 4 ||
				!strings.Contains(log.String(), "blocker.path="+blocker) || !strings.Contains(log.String(), "blocker.data="+data) {
				t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, blocker, &log)
			}
			log.Reset()
		}
		if err := w.Srv.Create(d.Node(), []byte("foreign")); err != nil {
			t.Fatal(err)
		}
		entering := w.enter(t.Context(), d)
		said(d.Node(), "foreign")
		w.remove(strings.TrimPrefix(d.Node(), path+"/"))
		other := w.in(w.enter(t.Context(), w.double(w.Session("other"), 2, "other")))
		leaving := w.leave(t.Context(), w.in(entering))
		said(other.Node(), "other")
		w.ended(w.leave(t.Context(), other), nil)
		w.ended(leaving, nil)
	})
}

// An Enter that waits for long until the handle's earlier znode is gone, because no server can be reached, logs that.
func TestLongWaitForOnesOwnIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		d, err := barrier.NewDouble(w.Session("a"), path, 2, barrier.DoubleOptions{
			Identifier: "ours", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		own := d.Node()
		first := w.enter(ctx, d)
		synctest.Wait()
		w.Net.Client("a").BlackHole(zktest.Both)
		w.ended(first, context.DeadlineExceeded)
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err = d.Enter(ctx)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != own || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if said := strings.Count(log.String(), "still waiting"); said != 4 ||
			!strings.Contains(log.String(), "blocker.path="+own) || !strings.Contains(log.String(), "blocker.data=ours") {
			t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, own, &log)
		}
		w.Net.Client("a").Heal()
	})
}

// Somebody else's znode has our name, before Enter or from just before our create: Enter logs that, knows that nobody can have
// entered with us, and goes on when that znode is gone.
func TestForeignZnodeOfOurName(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var log bytes.Buffer
			d, err := barrier.NewDouble(w.Session("a"), path, 2, barrier.DoubleOptions{
				Identifier: "ours", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			own := d.Node()
			foreign := func() {
				if err := w.Srv.Create(own, []byte("theirs")); err != nil {
					t.Error(err)
				}
			}
			if late {
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op == zktest.OpCreate && r.Path == own && foreign != nil {
						foreign()
						foreign = nil
					}
					return zktest.Action{}
				})
			} else {
				foreign()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			_, err = d.Enter(ctx)
			blocked, ok := errors.AsType[*recipe.BlockedError](err)
			if !ok || blocked.Blocker != own || blocked.Identifier != "theirs" || errors.Is(err, session.ErrUncertain) {
				t.Errorf("late: %v: got %v", late, err)
			}
			if said := strings.Count(log.String(), "still waiting"); said != 4 ||
				!strings.Contains(log.String(), "blocker.path="+own) || !strings.Contains(log.String(), "blocker.data=theirs") {
				t.Errorf("late: %v: said %d times, want 4, and that %s is in the way:\n%s", late, said, own, &log)
			}
			w.Srv.SetHook(nil)
			w.remove(own[len(path)+1:])
			own = d.Node()
			if err := w.Srv.Create(own, []byte("theirs")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			entering := w.enter(ctx, d)
			time.Sleep(time.Minute)
			w.remove(nameOf(d))
			w.ended(entering, session.ErrUncertain) // our znode exists now, alone
			if blocked, ok := errors.AsType[*recipe.BlockedError](entering.err); !ok || blocked.Blocker != "" || !strings.HasSuffix(blocked.Detail, "members") || blocked.Detail[0] == '0' {
				t.Errorf("late: %v: got %v", late, entering.err)
			}
		})
	}
}
