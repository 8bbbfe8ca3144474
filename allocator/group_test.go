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
	"github.com/kielgo/kiel/internal/sharedset"
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

func TestStormOfJoins(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.start("first", allocator.Options{Seed: map[string][]int32{"t": ids(100)}})
		first.ready()
		sleep(time.Minute)
		first.rebalanced()
		var names []string
		for i := range 50 {
			name := fmt.Sprintf("m%02d", i)
			names = append(names, name)
			w.start(name, allocator.Options{Seed: map[string][]int32{"t": ids(100)}})
		}
		sleep(settle)
		w.agree(allocfn.RoundRobin(), append(names, "first"), items("t", 100))
		if n := len(first.rebalanced()); n > 3 {
			w.Errorf("the first member rebalanced %d times", n)
		}
		most := 0
		for _, name := range names {
			most = max(most, len(w.nodes[name].rebalanced()))
		}
		if most > 4 {
			w.Errorf("one of the others rebalanced %d times", most)
		}
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
			if err := step(w.Context()); err != nil {
				w.Error(err)
			}
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

// TestSetIsChangedWithoutRun needs no membership, only the session.
func TestSetIsChangedWithoutRun(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.make("a", allocator.Options{})
		ctx, cancel := context.WithCancel(w.Context())
		go func() { n.after <- n.session.Run(ctx) }()
		if err := n.AddPartitions(w.Context(), map[string][]int32{"t": {0}}); err != nil {
			w.Error(err)
		}
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

func TestPythonMember(t *testing.T) {
	inWorld(t, func(w *world) {
		opts := allocator.Options{
			Seed: map[string][]int32{"t": ids(6)}, Func: allocfn.Range(), AlsoFuncs: []allocfn.Func{allocfn.RoundRobin()},
		}
		w.start("b", opts).ready()
		w.start("d", opts).ready()
		sleep(time.Minute)
		w.agree(allocfn.Range(), []string{"b", "d"}, items("t", 6))
		for _, python := range []string{"a", "c", "e"} {
			if err := w.srv.Create(members+"/"+python, nil); err != nil {
				w.Fatal(err)
			}
			sleep(settle)
			w.agree(allocfn.RoundRobin(), w.srv.Children(members), items("t", 6))
			if err := w.srv.Delete(members + "/" + python); err != nil {
				w.Fatal(err)
			}
			sleep(settle)
			w.agree(allocfn.Range(), []string{"b", "d"}, items("t", 6))
		}
		// Any child counts, whatever its name and data.
		for _, odd := range []string{"_c_x", "a member", "caf\u00e9"} {
			if err := w.srv.Create(members+"/"+odd, []byte("\xff\x00")); err != nil {
				w.Fatal(err)
			}
		}
		sleep(settle)
		w.agree(allocfn.RoundRobin(), w.srv.Children(members), items("t", 6))
		if err := w.nodes["b"].failed(); !errors.Is(err, allocator.ErrBadRecord) {
			w.Error(err)
		}
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

func TestMismatchKeepsTheLastGoodMapping(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(2)}})
		a.ready()
		sleep(time.Minute)
		b := w.start("b", allocator.Options{Func: allocfn.Range()})
		sleep(settle)
		if s := a.Snapshot(); !errors.Is(s.Err, allocator.ErrFuncMismatch) || a.own() != 2 || !s.Joined {
			w.Errorf("a owns %d: %v", a.own(), s.Err)
		}
		if s := b.Snapshot(); !errors.Is(s.Err, allocator.ErrFuncMismatch) || b.own() != 0 {
			w.Errorf("b owns %d: %v", b.own(), s.Err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := b.Ready(ctx); !errors.Is(err, allocator.ErrFuncMismatch) {
			w.Error(err)
		}
		b.end()
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a"}, items("t", 2))
	})
}

func TestGarbageInTheSet(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.pair(ids(4), ids(4))
		sleep(time.Minute)
		a.rebalanced()
		for _, garbage := range []string{"{}", "null", `["t:0"`, "[1]", strings.Repeat("[", 1<<19), "\x1f\x8b\x08", "\ufeff[]"} {
			if err := w.srv.Set(partitions, []byte(garbage)); err != nil {
				w.Fatal(err)
			}
			sleep(settle)
			if s := a.Snapshot(); !errors.Is(s.Err, sharedset.ErrUnreadable) || list(s.Mine()) != "t:0 t:2" {
				w.Errorf("%.20q: %v, %v", garbage, s.Mine(), s.Err)
			}
			if got := w.set(); got != garbage {
				w.Errorf("%.20q was written over: %.50q", garbage, got)
			}
		}
		if n := len(a.rebalanced()); n != 0 {
			w.Errorf("%d rebalances", n)
		}
		if err := a.AddPartitions(w.Context(), map[string][]int32{"t": {9}}); !errors.Is(err, sharedset.ErrUnreadable) {
			w.Error(err)
		}
		if err := w.srv.Set(partitions, []byte(`["t:1","t:0"]`)); err != nil {
			w.Fatal(err)
		}
		sleep(time.Second)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 2))
	})
}

func TestItemsThatAreNoPartitions(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(2)}})
		a.ready()
		set := `["t:0", "nonsense", "a:b:1", "t:2147483648", "weird topic!:1"]`
		if err := w.srv.Set(partitions, []byte(set)); err != nil {
			w.Fatal(err)
		}
		sleep(settle)
		s := a.Snapshot()
		if !errors.Is(s.Err, kiel.ErrInvalidPartition) || list(s.Mine()) != "t:0 weird topic!:1" {
			w.Errorf("%s, %v", list(s.Mine()), s.Err)
		}
		if w.set() != set {
			w.Error("the set was changed:", w.set())
		}
		if err := a.RemoveItems(w.Context(), "t:2147483648", "nonsense", "a:b:1"); err != nil {
			w.Error(err)
		}
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
		if err := w.srv.Delete(partitions); err != nil {
			w.Fatal(err)
		}
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 3))
		for _, r := range append(a.rebalanced(), b.rebalanced()...) {
			if len(r.Added)+len(r.Removed) > 0 {
				w.Errorf("moved in between: +%v -%v", r.Added, r.Removed)
			}
		}
		// What was added and removed since is remembered.
		if err := a.AddPartitions(w.Context(), map[string][]int32{"t": {3, 4}}); err != nil {
			w.Fatal(err)
		}
		if err := a.RemovePartitions(w.Context(), map[string][]int32{"t": {4}}); err != nil {
			w.Fatal(err)
		}
		sleep(settle)
		if err := w.srv.Delete(partitions); err != nil {
			w.Fatal(err)
		}
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 4))
		// An empty set is not a missing one.
		if err := w.srv.Set(partitions, nil); err != nil {
			w.Fatal(err)
		}
		sleep(time.Hour)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, nil)
	})
}

func TestWholeGroupDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"a", "b"} {
			w.start(name, allocator.Options{Seed: map[string][]int32{"t": ids(3)}}).ready()
		}
		sleep(time.Minute)
		if err := w.srv.Delete("/kiel"); err != nil {
			w.Fatal(err)
		}
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 3))
	})
}

func TestRebalanceReadsAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(2)}})
		a.ready()
		sleep(time.Minute)
		before := a.Snapshot().Version
		if err := a.Rebalance(w.Context()); err != nil {
			w.Error(err)
		}
		s := a.Snapshot()
		if s.Version != before+1 || s.Reason.Code != status.Manual {
			w.Errorf("version %d after %d by %s", s.Version, before, s.Reason)
		}
		// What was written before the call is in its snapshot.
		for i := range 20 {
			if err := w.srv.Set(partitions, fmt.Appendf(nil, `["t:%d"]`, i)); err != nil {
				w.Fatal(err)
			}
			if err := a.Rebalance(w.Context()); err != nil {
				w.Error(err)
			}
			if got, want := list(a.Snapshot().Mine()), fmt.Sprintf("t:%d", i); got != want {
				w.Errorf("got %s, want %s", got, want)
			}
			if err := w.srv.Create(fmt.Sprintf("%s/z%d", members, i), nil); err != nil {
				w.Fatal(err)
			}
			if err := a.Rebalance(w.Context()); err != nil {
				w.Error(err)
			}
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
		if err := b.Leave(w.Context()); err != nil {
			w.Error(err)
		}
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
		if err := a.AddPartitions(w.Context(), map[string][]int32{"t": {4}}); err != nil {
			w.Error(err)
		}
		sleep(time.Minute)
		if s := b.Snapshot(); fmt.Sprint(s.Mapping()) != "map[a:map[t:[0 1 2 3 4]]]" || s.Joined {
			w.Error(s.Mapping(), s.Joined)
		}
		if err := b.Leave(w.Context()); err != nil {
			w.Error("a second time:", err)
		}
	})
}
