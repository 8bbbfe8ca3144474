package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

func TestThreeMembersAgree(t *testing.T) {
	inWorld(t, func(w *world) {
		var names []string
		for i, name := range []string{"b", "a", "c"} {
			start := time.Now()
			n := w.start(name, allocator.Options{Seed: map[string][]int32{"t": ids(7)}})
			n.ready()
			if d := time.Since(start); d > 100*time.Millisecond {
				w.Errorf("member %d was ready after %v", i, d)
			}
			sleep(10 * time.Millisecond) // the others'
			names = append(names, name)
			w.agree(allocfn.RoundRobin(), names, items("t", 7))
			sleep(time.Minute)
		}
		if got := fmt.Sprint(w.nodes["a"].Allocation()); got != "map[t:[0 3 6]]" {
			w.Error(got)
		}
		if got, want := w.set(), `["t:0", "t:1", "t:2", "t:3", "t:4", "t:5", "t:6"]`; got != want {
			w.Error(got)
		}
		data, _, _ := w.srv.Get(members + "/a")
		if got, want := string(data), `{"v":1,"functions":["roundrobin/1"]}`; got != want {
			w.Error(got)
		}
		start := time.Now()
		w.nodes["b"].end()
		sleep(10 * time.Millisecond)
		if time.Since(start) > time.Second {
			w.Error("leaving took", time.Since(start))
		}
		w.agree(allocfn.RoundRobin(), []string{"a", "c"}, items("t", 7))
	})
}

func TestAddAndRemovePartitions(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.pair(nil, nil)
		for _, step := range []func(context.Context) error{
			func(ctx context.Context) error { return a.AddPartitions(ctx, map[string][]int32{"t": {0, 1, 2}}) },
			func(ctx context.Context) error {
				return b.AddPartitions(ctx, map[string][]int32{"t": {2, 3}, "u": {0}})
			},
			func(ctx context.Context) error { return a.RemovePartitions(ctx, map[string][]int32{"t": {0, 9}}) },
			func(ctx context.Context) error { return a.RemovePartitions(ctx, nil) },
		} {
			noerr.Want(w, step(w.Context()))
		}
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, []string{"t:1", "t:2", "t:3", "u:0"})

		err := a.AddPartitions(w.Context(), map[string][]int32{"a/b": {0}, "ok": {-1}, "": {0}})
		for _, part := range []string{`"a/b"`, "partition -1 of topic ok", `topic ""`} {
			if err == nil || !strings.Contains(err.Error(), part) {
				w.Errorf("%v does not name %s", err, part)
			}
		}
		if err := a.RemovePartitions(w.Context(), map[string][]int32{"..": {0}}); !errors.Is(err, kiel.ErrInvalidName) {
			w.Error(err)
		}
	})
}

func TestItemsThatAreNoPartitions(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(2)}})
		a.ready()
		set := `["t:0", "nonsense", "a:b:1", "t:2147483648", "weird topic!:1"]`
		noerr.Must(w, w.srv.Set(partitions, []byte(set)))
		sleep(settle)
		s := a.Snapshot()
		if !errors.Is(s.Err, kiel.ErrInvalidPartition) || list(s.Mine()) != "t:0 weird topic!:1" {
			w.Errorf("%s, %v", list(s.Mine()), s.Err)
		}
		if w.set() != set {
			w.Error("the set was changed:", w.set())
		}
		noerr.Want(w, a.RemoveItems(w.Context(), "t:2147483648", "nonsense", "a:b:1"))
		sleep(settle)
		if s := a.Snapshot(); s.Err != nil || w.set() != `["t:0", "weird topic!:1"]` {
			w.Errorf("left are %s, %v", w.set(), s.Err)
		}
	})
}

func TestDeletedSetIsSeededAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.pair([]int32{0, 1}, []int32{1, 2})
		sleep(time.Minute)
		a.rebalanced()
		b.rebalanced()
		noerr.Must(w, w.srv.Delete(partitions))
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 3))
		for _, r := range append(a.rebalanced(), b.rebalanced()...) {
			if len(r.Added)+len(r.Removed) > 0 {
				w.Errorf("moved in between: +%v -%v", r.Added, r.Removed)
			}
		}
		// Partitions that were added or removed since are remembered.
		noerr.Must(w, a.AddPartitions(w.Context(), map[string][]int32{"t": {3, 4}}))
		noerr.Must(w, a.RemovePartitions(w.Context(), map[string][]int32{"t": {4}}))
		sleep(settle)
		noerr.Must(w, w.srv.Delete(partitions))
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 4))
		// An empty set is not a missing one.
		noerr.Must(w, w.srv.Set(partitions, nil))
		sleep(time.Hour)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, nil)
	})
}

// TestSetIsChangedWithoutRun needs no membership, only the session.
func TestSetIsChangedWithoutRun(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.make("a", allocator.Options{})
		ctx, cancel := context.WithCancel(w.Context())
		go func() { n.after <- n.session.Run(ctx) }()
		noerr.Want(w, n.AddPartitions(w.Context(), map[string][]int32{"t": {0}}))
		if got := w.set(); got != `["t:0"]` {
			w.Error(got)
		}
		if got := w.srv.Children(members); len(got) != 0 {
			w.Error("a member:", got)
		}
		cancel()
		<-n.after
	})
}

// TestRollingChangeOfFunction moves a group from one function to another by restarting its members one at a time.
func TestRollingChangeOfFunction(t *testing.T) {
	inWorld(t, func(w *world) {
		names := []string{"a", "b", "c"}
		old := allocator.Options{Seed: map[string][]int32{"t": ids(9)}, Func: allocfn.RoundRobin()}
		both := old
		both.Func, both.AlsoFuncs = allocfn.Range(), []allocfn.Func{allocfn.RoundRobin()}
		only := old
		only.Func = allocfn.Range()
		for _, name := range names {
			w.start(name, old).ready()
		}
		for _, step := range []struct {
			name string
			opts allocator.Options
			want allocfn.Func
		}{
			{"b", both, allocfn.RoundRobin()},
			{"a", both, allocfn.RoundRobin()},
			{"c", both, allocfn.Range()},
			{"c", only, allocfn.Range()},
			{"b", only, allocfn.Range()},
			{"a", only, allocfn.Range()},
		} {
			w.nodes[step.name].end()
			sleep(settle)
			w.start(step.name, step.opts).ready()
			sleep(settle)
			w.agree(step.want, names, items("t", 9))
		}
	})
}

func TestRebalanceReadsAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(2)}})
		a.ready()
		sleep(time.Minute)
		before := a.Snapshot().Version
		noerr.Want(w, a.Rebalance(w.Context()))
		s := a.Snapshot()
		if s.Version != before+1 || s.Reason.Code != status.Manual {
			w.Errorf("version %d after %d by %s", s.Version, before, s.Reason)
		}
		// What was written before the call is in its snapshot.
		for i := range 20 {
			noerr.Must(w, w.srv.Set(partitions, fmt.Appendf(nil, `["t:%d"]`, i)))
			noerr.Want(w, a.Rebalance(w.Context()))
			if got, want := list(a.Snapshot().Mine()), fmt.Sprintf("t:%d", i); got != want {
				w.Errorf("got %s, want %s", got, want)
			}
			noerr.Must(w, w.srv.Create(fmt.Sprintf("%s/z%d", members, i), nil))
			noerr.Want(w, a.Rebalance(w.Context()))
			if got := len(a.Snapshot().Members); got != i+2 {
				w.Errorf("%d members, want %d", got, i+2)
			}
		}
		w.net.Refuse()
		w.net.Cut()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := a.Rebalance(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
		}
		w.net.Heal()
	})
}

func TestLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.pair(ids(4), nil)
		sleep(time.Minute)
		noerr.Want(w, b.Leave(w.Context()))
		if s := b.Snapshot(); s.Joined || b.own() != 0 || s.Incarnation.Context().Err() != nil {
			w.Error("joined still")
		}
		sleep(10 * time.Millisecond)
		if s := b.Snapshot(); fmt.Sprint(s.Mapping()) != "map[a:map[t:[0 1 2 3]]]" || s.Err != nil {
			w.Error("does not see where its partitions go:", s.Mapping(), s.Err)
		}
		if a.own() != 4 {
			w.Error("a owns", a.own())
		}
		// It goes on watching, and does not come back.
		b.kill()
		noerr.Want(w, a.AddPartitions(w.Context(), map[string][]int32{"t": {4}}))
		sleep(time.Minute)
		if s := b.Snapshot(); fmt.Sprint(s.Mapping()) != "map[a:map[t:[0 1 2 3 4]]]" || s.Joined {
			w.Error(s.Mapping(), s.Joined)
		}
		noerr.Want(w, b.Leave(w.Context()))
	})
}
