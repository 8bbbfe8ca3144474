package session_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// told waits until something is told, for a second at most, and returns all that was, sorted.
func told(t *testing.T, w *session.DataWatches) []string {
	t.Helper()
	select {
	case <-w.C():
	case <-time.After(time.Second):
	}
	synctest.Wait()
	changed := w.Changed()
	slices.Sort(changed)
	return changed
}

func wantTold(t *testing.T, what string, w *session.DataWatches, want ...string) {
	t.Helper()
	if got := told(t, w); !slices.Equal(got, want) {
		t.Errorf("%s: told of %v, want %v", what, got, want)
	}
}

// make creates znodes and returns the last transaction.
func (w *world) make(inc *session.Incarnation, paths ...string) int64 {
	w.t.Helper()
	var last int64
	for _, path := range paths {
		noerr.Must(w.t, w.srv.Create(path, nil))
		_, stat, err := inc.Get(w.t.Context(), path)
		noerr.Must(w.t, err)
		last = max(last, stat.Mzxid)
	}
	return last
}

func (w *world) set(path string) {
	w.t.Helper()
	noerr.Must(w.t, w.srv.Set(path, []byte("x")))
}

func (w *world) delete(path string) {
	w.t.Helper()
	noerr.Must(w.t, w.srv.Delete(path))
}

// count counts the requests of a kind.
func (w *world) count(op zktest.Op) *atomic.Int64 {
	n := &atomic.Int64{}
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Op == op {
			n.Add(1)
		}
		return zktest.Action{}
	})
	return n
}

// Each change and deletion of a watched znode is told once, be it before the watch reaches the server or after, and that of no
// other znode.
func TestDataWatches(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		since := w.make(inc, "/a", "/b", "/c", "/d")
		w.set("/b") // before the watch
		d := inc.DataWatches()
		d.Add(since, "/a", "/b", "/c", "/gone")
		wantTold(t, "changed before", d, "/b", "/gone")
		w.set("/a")
		w.set("/a")
		w.set("/d")
		wantTold(t, "changed", d, "/a")
		w.delete("/c")
		wantTold(t, "deleted", d, "/c")
		w.set("/b")
		wantTold(t, "not added again", d)
		_, stat, err := inc.Get(t.Context(), "/b")
		noerr.Must(t, err)
		d.Add(stat.Mzxid, "/b")
		wantTold(t, "added again", d)
		d.Remove("/b")
		w.set("/b")
		wantTold(t, "removed", d)
	})
}

// Two DataWatches of one session do not disturb each other, nor other watches.
func TestDataWatchesShare(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		since := w.make(inc, "/a")
		d, e := inc.DataWatches(), inc.DataWatches()
		d.Add(since, "/a")
		e.Add(since, "/a")
		_, _, watch, err := inc.GetW(t.Context(), "/a")
		noerr.Must(t, err)
		w.set("/a")
		wantTold(t, "the first", d, "/a")
		wantTold(t, "the second", e, "/a")
		if open(watch.C()) {
			t.Error("the other watch does not wake")
		}
	})
}

// Thousands of znodes cost some requests when they are added, as many after the connection was lost, and none while nothing
// changes. A change while there is no connection is told after it.
func TestDataWatchesCost(t *testing.T) {
	const n = 5000
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		var paths []string
		for i := range n {
			paths = append(paths, fmt.Sprintf("/group/owners/topic-of-some-length:%05d", i))
		}
		since := w.make(inc, paths...)
		sets, reads := w.count(zktest.OpSetWatches), int64(60) // 5,000 paths of 45 bytes
		d := inc.DataWatches()
		d.Add(since, paths...)
		time.Sleep(time.Hour)
		if got := sets.Load(); got > reads {
			t.Errorf("%d requests for %d znodes in an hour", got, n)
		}
		w.net.Refuse()
		m.link.Cut()
		w.set(paths[7])
		w.delete(paths[8])
		time.Sleep(time.Second)
		w.net.Heal()
		time.Sleep(2 * time.Second)
		if !inc.Trusted() {
			t.Fatal("trust has ended")
		}
		if got := sets.Load(); got > 2*reads {
			t.Errorf("%d requests for %d znodes with a lost connection", got, n)
		}
		wantTold(t, "changed while there was no connection", d, paths[7], paths[8])
		w.set(paths[9])
		wantTold(t, "changed after it", d, paths[9])
	})
}

// Watches that are added without a connection, or whose request got no answer, are set on the next connection, since the same
// transaction.
func TestDataWatchesAddedWithoutConnection(t *testing.T) {
	for name, prepare := range map[string]func(w *world, m *member){
		"no connection": func(w *world, m *member) { w.net.Refuse(); m.link.Cut() },
		"no answer": func(w *world, _ *member) {
			w.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpSetWatches })
		},
		"not sent": func(w *world, _ *member) {
			cut := false
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op == zktest.OpSetWatches && !cut {
					cut = true
					return zktest.Action{Cut: true}
				}
				return zktest.Action{}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.start("a", nil)
				inc := m.incarnation()
				since := w.make(inc, "/a", "/b", "/c")
				w.set("/a")
				noerr.Last(t)(inc.Get(t.Context(), "/b")) // an answer that is newer than the change
				prepare(w, m)
				d := inc.DataWatches()
				d.Add(since, "/a", "/b", "/c")
				time.Sleep(time.Second / 2)
				w.net.Heal()
				time.Sleep(2 * time.Second)
				wantTold(t, "changed meanwhile", d, "/a")
				// A later connection asks since its last answer, which is newer than this change.
				w.set("/b")
				wantTold(t, "changed later", d, "/b")
				m.link.Cut()
				time.Sleep(time.Second)
				wantTold(t, "a lost connection", d)
				w.set("/c")
				wantTold(t, "changed on the third connection", d, "/c")
			})
		})
	}
}

// Watches that a server refuses to set are set again, after a pause each time.
func TestDataWatchesRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		since := w.make(inc, "/a", "/b")
		sent := 0
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpSetWatches {
				if sent++; sent <= 5 {
					return zktest.Action{Err: zktest.ErrUnimplemented}
				}
			}
			return zktest.Action{}
		})
		d := inc.DataWatches()
		d.Add(since, "/a", "/b")
		w.set("/a")
		d.Remove("/b")
		wantTold(t, "refused", d)
		time.Sleep(10 * time.Second)
		wantTold(t, "accepted", d, "/a")
		if sent != 6 {
			t.Errorf("%d requests, want 6", sent)
		}
	})
}

// The watches end with their incarnation, and with End.
func TestDataWatchesEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		since := w.make(inc, "/a")
		d, e := inc.DataWatches(), inc.DataWatches()
		d.Add(since, "/a")
		e.Add(since, "/a")
		e.End()
		w.set("/a")
		wantTold(t, "after End", e)
		wantTold(t, "of another", d, "/a")
		proofsFail(w, true)
		<-inc.Context().Done()
		synctest.Wait()
		d.Add(since, "/a")
		wantTold(t, "after the end of the incarnation", d)
		proofsFail(w, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if next, err := m.Incarnation(ctx); err != nil || session.Sets(next) != 0 {
			t.Errorf("%d DataWatches are left (%v)", session.Sets(next), err)
		}
	})
}

// After the servers have lost data, what has changed while there was no connection is told, though zxids are smaller than before.
func TestDataWatchesAfterALossOfData(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		w.make(inc, "/a", "/b")
		backup := w.srv.Backup()
		for i := range 50 {
			w.make(inc, fmt.Sprintf("/x%d", i))
		}
		w.srv.Down()
		time.Sleep(2 * timeout)
		w.srv.Restore(backup, zktest.RestoreOptions{})
		time.Sleep(2 * timeout)
		again := m.incarnation()
		if again.History() == inc.History() || again.SessionID() != inc.SessionID() {
			t.Fatal("the servers have lost nothing, or the session")
		}
		since := w.make(again, "/c")
		d := again.DataWatches()
		d.Add(since, "/a", "/b", "/c")
		wantTold(t, "nothing has changed", d)
		w.net.Refuse()
		m.link.Cut()
		w.set("/a")
		time.Sleep(time.Second / 2)
		w.net.Heal()
		time.Sleep(2 * time.Second)
		wantTold(t, "changed while there was no connection", d, "/a")
	})
}

// The root of a chroot is told as "/".
func TestDataWatchesOfTheRoot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", func(o *session.Options) { o.Chroot = "/chroot" }).incarnation()
		_, stat, err := inc.Get(t.Context(), "/")
		noerr.Must(t, err)
		d := inc.DataWatches()
		d.Add(stat.Mzxid, "/")
		w.set("/chroot")
		wantTold(t, "the root", d, "/")
	})
}
