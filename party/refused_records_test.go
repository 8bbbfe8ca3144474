package party_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// TestRecordsRefused is red if a member is kept out, or sees less, because the servers refuse the directory of records.
func TestRecordsRefused(t *testing.T) {
	for name, refused := range map[string]func(r *zktest.Request) bool{
		"list":   func(r *zktest.Request) bool { return r.Op == zktest.OpGetChildren2 && r.Path == records },
		"create": func(r *zktest.Request) bool { return r.Op == zktest.OpCreate && strings.HasPrefix(r.Path, records) },
		"entry":  func(r *zktest.Request) bool { return r.Op == zktest.OpCreate && strings.HasPrefix(r.Path, records+"/") },
		"all":    func(r *zktest.Request) bool { return strings.HasPrefix(r.Path, records) },
	} {
		for _, code := range []zktest.Error{zktest.ErrNoAuth, zktest.Error(-125), zktest.ErrUnimplemented} {
			t.Run(fmt.Sprint(name, code), func(t *testing.T) {
				inWorld(t, func(w *world) {
					var on atomic.Bool
					on.Store(true)
					w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
						part := slices.ContainsFunc(r.Ops, func(op zktest.Request) bool { return refused(&op) })
						if on.Load() && (refused(r) || part) {
							return zktest.Action{Err: code}
						}
						return zktest.Action{}
					})
					a := w.hashedMember("a", "one")
					b := w.hashedMember("b", "two")
					c := w.member("c")
					for _, m := range []*member{a, b} {
						m.data(time.Second, "a", "one")
						m.data(time.Second, "b", "two")
						m.data(time.Second, "c", "record of c")
						if v := m.View(); v.Err != nil {
							w.Errorf("%s: %v", m.Name(), v.Err)
						}
					}
					requests := w.Srv.Stats().Requests
					time.Sleep(5 * timeout)
					after := w.Srv.Stats().Requests
					for op, n := range after {
						if op != zktest.OpPing && op != zktest.OpExists && op != zktest.OpGetData && n-requests[op] > 3*8*5 {
							w.Errorf("%d %v in 5 session timeouts", n-requests[op], op)
						}
					}
					on.Store(false)
					time.Sleep(3 * timeout)
					if names := w.Srv.Children(records); len(names) != 2 {
						w.Errorf("entries %q", names)
					}
					must(w, a.stop())
					b.awaitNames(time.Second, "b", "c")
					must(w, c.stop())
					must(w, b.stop())
					if names := append(w.Srv.Children(records), w.Srv.Children(directory)...); len(names) > 0 {
						w.Errorf("left are %q", names)
					}
				})
			})
		}
	}
}

// TestRecordsRefusedLater is red if a member that has listed the directory of records sees no more changes when the servers
// refuse that.
func TestRecordsRefusedLater(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.hashedMember("a", "one")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == records && (r.Op == zktest.OpExists || r.Op == zktest.OpGetChildren2) {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		w.member("b") // without an entry, so that no watch of the directory fires
		a.data(time.Second, "b", "record of b")
		time.Sleep(3 * timeout)
		if v := a.View(); v.Err != nil || !v.Joined {
			w.Errorf("joined %v, %v", v.Joined, v.Err)
		}
	})
}

// TestDirectoryDeletedWhileJoining is red if Run ends because somebody deletes the directory that it has just made.
func TestDirectoryDeletedWhileJoining(t *testing.T) {
	inWorld(t, func(w *world) {
		var joins atomic.Int32
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti && len(r.Ops) == 2 && joins.Add(1) == 2 {
				must(w, w.Srv.Delete(directory))
			}
			return zktest.Action{}
		})
		w.hashedMember("a", "record")
	})
}

// TestGarbageIsListedSlowly is red if a large directory of records is listed for each of many changes.
func TestGarbageIsListedSlowly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hashedMember("a", "record")
		for i := range 1000 {
			must(w, w.Srv.Create(fmt.Sprint(records, "/before-", i), nil))
		}
		time.Sleep(timeout)
		before := w.Srv.Stats().Requests[zktest.OpGetChildren2]
		for i := range 300 {
			must(w, w.Srv.Create(fmt.Sprint(records, "/now-", i), nil))
			time.Sleep(10 * time.Millisecond)
		}
		if got := w.Srv.Stats().Requests[zktest.OpGetChildren2] - before; got > 6 {
			w.Errorf("%d lists in three seconds", got)
		}
	})
}

// TestLeavingRefusedTogether is red if a member's znode stays because the servers refuse to delete its entry with it.
func TestLeavingRefusedTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.hashedMember("a", "record")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti && len(r.Ops) == 2 {
				return zktest.Action{Err: zktest.ErrUnimplemented}
			}
			return zktest.Action{}
		})
		must(w, a.stop())
		w.wantGone("a")
	})
}
