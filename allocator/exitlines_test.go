package allocator_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// A member that leaves does not log troubles as recovered which it does not see any more, and a group without members was not
// rebalanced.
func TestNothingRecoversByAnExit(t *testing.T) {
	for name, c := range map[string]struct {
		name, kind string
		opts       allocator.Options
	}{
		"another function": {"b", "allocation", allocator.Options{Func: allocfn.Range()}},
		"the name is held": {"a", "name", allocator.Options{}},
		"nothing is wrong": {"b", "", allocator.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				log := new(logtest.Log)
				a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": {0, 1, 2}}, Func: allocfn.Balanced()})
				a.ready()
				opts := c.opts
				opts.Logger = slog.New(slog.NewTextHandler(log, nil))
				if opts.Func.Assign == nil {
					opts.Func = allocfn.Balanced()
				}
				n := w.start(c.name, opts)
				w.nodes["a"] = a // if n has its name
				time.Sleep(5 * time.Second)
				if failed := log.Count("msg=failed", "kind="+c.kind); c.kind != "" && failed != 1 {
					w.Errorf("%d lines of the kind %s:\n%s", failed, c.kind, log)
				}
				noerr.Want(w, n.Leave(w.Context()))
				time.Sleep(time.Second)
				noerr.Want(w, n.shutDown())
				delete(w.nodes, "b")
				if n := log.Count("msg=recovered"); n > 0 {
					w.Errorf("%d times recovered:\n%s", n, log)
				}
				if n := log.Count("msg=rebalanced", " members=0 "); n > 0 {
					w.Errorf("%d rebalances without members:\n%s", n, log)
				}
			})
		})
	}
}

// The last member that leaves logs no mapping of nobody.
func TestLastMemberLeavesSilently(t *testing.T) {
	inWorld(t, func(w *world) {
		log := new(logtest.Log)
		n := w.start("a", allocator.Options{Seed: map[string][]int32{"t": {0}}, Logger: slog.New(slog.NewTextHandler(log, nil))})
		n.ready()
		time.Sleep(time.Second)
		noerr.Want(w, n.Leave(w.Context()))
		time.Sleep(time.Minute)
		if n := log.Count("msg=rebalanced"); n == 0 || log.Count("msg=rebalanced", " members=0 ") > 0 {
			w.Errorf("%d rebalances:\n%s", n, log)
		}
	})
}
