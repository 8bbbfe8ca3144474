package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

func TestKilledSessionComesBack(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.pair(ids(4), nil)
		sleep(time.Minute)
		a.rebalanced()
		old := a.Snapshot()
		for range 3 {
			a.kill()
			sleep(settle)
			w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 4))
			if s := a.Snapshot(); s.Incarnation == old.Incarnation || s.Reason.Code != status.SessionLost {
				w.Errorf("by %s", s.Reason)
			}
			told := a.rebalanced()
			// The loss and the return are one rebalance if both came before the callback was called.
			first := told[0]
			merged := len(told) == 1 && first.Snapshot.Joined && len(first.Added) == 0 && len(first.Removed) == 0
			if !merged && (list(first.Removed) != "t:0 t:2" || first.Snapshot.Joined) {
				w.Errorf("first told +%v -%v, of %d", first.Added, first.Removed, len(told))
			}
		}
		if err := a.failed(); !errors.Is(err, session.ErrSessionExpired) {
			w.Error(err)
		}
	})
}

func TestSilentMemberLosesItsShare(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.pair(ids(4), nil)
		sleep(time.Minute)
		a.client.BlackHole(zktest.Both)
		start := time.Now()
		for b.own() != 4 && time.Since(start) < time.Minute {
			if a.own() > 0 != a.Snapshot().Incarnation.Trusted() || a.own() != len(slices.Concat(values(a.Allocation())...)) {
				w.Errorf("after %v: owns %d, allocation %v, trusted %t", time.Since(start), a.own(), a.Allocation(), a.Snapshot().Incarnation.Trusted())
			}
			sleep(100 * time.Millisecond)
		}
		if a.own() != 0 {
			w.Error("both own it")
		}
		if d := time.Since(start); d > timeout+3*time.Second {
			w.Error("taken over after", d)
		}
		if s := a.Snapshot(); s.Joined || s.Err == nil {
			w.Errorf("joined %t, %v", s.Joined, s.Err)
		}
		a.client.Heal()
		sleep(2 * settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 4))
	})
}

func values(m map[string][]int32) (all [][]int32) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// All is made again when the servers, or an operator, lose everything.
func TestAllDataLost(t *testing.T) {
	for what, loss := range map[string]struct {
		strike func(w *world)
		within time.Duration
	}{
		"servers": {func(w *world) { w.srv.Restart(true) }, time.Minute},
		"group":   {func(w *world) { noerr.Must(w, w.srv.Delete("/kiel")) }, settle},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.pair(ids(4), ids(4))
				sleep(time.Minute)
				loss.strike(w)
				sleep(loss.within)
				w.agree(allocfn.RoundRobin(), []string{"a", "b"}, items("t", 4))
			})
		})
	}
}

func TestSecondOfAName(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(2)}})
		first.ready()
		delete(w.nodes, "a")
		var told []error
		second := w.start("a", allocator.Options{OnError: func(_ context.Context, err error) { told = append(told, err) }})
		sleep(time.Second)
		if s := second.Snapshot(); s == nil || s.Joined || !errors.Is(s.Err, allocator.ErrNameHeld) {
			w.Errorf("after a second: %v", s)
		}
		if err := <-second.ran; !errors.Is(err, allocator.ErrNameTaken) {
			w.Error(err)
		}
		second.ran <- nil // for end
		if s := second.Snapshot(); s.Joined || !errors.Is(s.Err, allocator.ErrNameTaken) || second.own() != 0 {
			w.Error(s)
		}
		second.end()
		if len(told) != 1 || !errors.Is(told[0], allocator.ErrNameHeld) {
			w.Errorf("OnError was told %v", told)
		}
		w.nodes["a"] = first
		w.agree(allocfn.RoundRobin(), []string{"a"}, items("t", 2))
	})
}

// TestStopInEveryPhase stops at random moments of random lives, with faults under way.
func TestStopInEveryPhase(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		delay := func(name string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(rt, name))
		}
		fault := rapid.SampledFrom([]string{"", "", "black hole", "refuse", "freeze", "kill", "restart", "garbage", "silent"}).Draw(rt, "fault")
		callback := rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond, 3 * time.Second}).Draw(rt, "callback")
		before, between := delay("before", 3*time.Second), delay("between", 10*time.Second)
		byContext := rapid.Bool().Draw(rt, "by context")
		rapid.SyncTest(rt, func(t *rapid.T) {
			w := newWorld(t)
			w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(3)}})
			after := false
			late := false
			b := w.make("b", allocator.Options{
				Seed: map[string][]int32{"u": ids(3)},
				OnRebalance: func(context.Context, allocator.Rebalance) {
					late = late || after
					time.Sleep(callback)
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			sctx, scancel := context.WithCancel(t.Context())
			go func() { b.after <- b.session.Run(sctx) }()
			go func() { b.ran <- b.Run(ctx) }()
			time.Sleep(before)
			switch fault {
			case "black hole":
				b.client.BlackHole(zktest.Both)
			case "refuse":
				b.client.Refuse()
				b.client.Cut()
			case "freeze":
				w.srv.Freeze()
			case "kill":
				b.kill()
			case "restart":
				w.srv.Restart(true)
			case "garbage":
				w.srv.Set(partitions, []byte("{"))
			case "silent":
				w.srv.SilentHandshakes(true)
				w.srv.CutAll()
			}
			time.Sleep(between)
			start := time.Now()
			if byContext {
				cancel()
			} else if err := b.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			noerr.Want(t, <-b.ran)
			after = true
			if d := time.Since(start); d > 30*time.Second {
				t.Error("stopping took", d)
			}
			if s := b.Snapshot(); s != nil && s.Joined {
				t.Error("joined after the end")
			}
			scancel()
			<-b.after
			cancel()
			b.client.Heal()
			w.srv.Thaw()
			w.srv.SilentHandshakes(false)
			sleep(time.Minute)
			if got := fmt.Sprint(w.srv.Children(members)); got != "[a]" {
				t.Error("members", got)
			}
			if late {
				t.Error("a callback after Run had returned")
			}
		})
	})
}

// TestMembersAgreeAfterRandomSchedules is the property that all rests on.
func TestMembersAgreeAfterRandomSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			op, name string
			ids      []int32
			pause    time.Duration
		}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				op: rapid.SampledFrom([]string{
					"join", "join", "join", "leave", "crash", "add", "add", "remove", "python", "unpython",
					"kill", "cut", "delete own", "restart", "rebalance", "delete set",
				}).Draw(rt, "op"),
				name:  rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(rt, "name"),
				ids:   rapid.SliceOfN(rapid.Int32Range(0, 12), 1, 4).Draw(rt, "ids"),
				pause: time.Duration(rapid.SampledFrom([]int{0, 1, 50, 300, 2000}).Draw(rt, "ms")) * time.Millisecond,
			}
		}), 1, 25).Draw(rt, "steps")
		rapid.SyncTest(rt, func(t *rapid.T) {
			w := newWorld(t)
			for i, s := range steps {
				n := w.nodes[s.name]
				topic := map[string][]int32{"t": s.ids}
				switch {
				case s.op == "join" && n == nil:
					w.net.Client(s.name).Heal()
					w.start(s.name, allocator.Options{Seed: topic, Func: allocfn.Range(), AlsoFuncs: []allocfn.Func{allocfn.RoundRobin()}})
				case s.op == "python":
					w.srv.Create(members+"/py-"+s.name, nil)
				case s.op == "unpython":
					w.srv.Delete(members + "/py-" + s.name)
				case s.op == "restart":
					w.srv.Restart(false)
				case s.op == "delete set":
					w.srv.Delete(partitions)
				case s.op == "delete own":
					w.srv.Delete(members + "/" + s.name)
				case n == nil:
				case s.op == "leave":
					n.end()
				case s.op == "crash":
					n.crash()
				case s.op == "add":
					noerr.Want(t, n.AddPartitions(t.Context(), topic))
				case s.op == "remove":
					noerr.Want(t, n.RemovePartitions(t.Context(), topic))
				case s.op == "kill":
					n.kill()
				case s.op == "cut":
					n.client.Cut()
				case s.op == "rebalance":
					noerr.Want(t, n.Rebalance(t.Context()))
				}
				sleep(s.pause)
				if i%8 == 7 || i == len(steps)-1 {
					w.check()
				}
			}
		})
	})
}

// check waits until nothing is under way any more and compares all members.
func (w *world) check() {
	w.Helper()
	sleep(4 * timeout)
	names := w.srv.Children(members)
	fn := allocfn.Range()
	for _, name := range names {
		if w.nodes[name] == nil {
			fn = allocfn.RoundRobin() // a Python member
		}
	}
	for name := range w.nodes {
		if !slices.Contains(names, name) {
			w.Fatalf("%s is no member: %v", name, names)
		}
	}
	set, err := decodeSet(w.set())
	noerr.Must(w, err)
	w.agree(fn, names, set)
}
