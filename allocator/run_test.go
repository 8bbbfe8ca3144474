package allocator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/sharedset"
)

func TestFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.join("a", "c")
		if r.Snapshot() != nil {
			t.Fatal("a snapshot without a set")
		}
		r.partitions("t:0", "t:1", "t:2")
		s := r.want(TriggerInitial, "")
		if s.Joined || list(s.Partitions) != "t:0 t:1 t:2" || fmt.Sprint(s.Members) != "[a c]" || s.Version != 1 {
			t.Errorf("%+v", s)
		}
		if got := fmt.Sprint(s.Mapping()); got != "map[a:map[t:[0 2]] c:map[t:[1]]]" {
			t.Error(got)
		}
		r.join("a", "b", "c") // we: at once
		s = r.want(TriggerMembers, "t:1")
		if err := r.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if owner, ok := s.Owner(allocfn.Partition{Topic: "t", ID: 2}); owner != "c" || !ok {
			t.Error(owner, ok)
		}
		if owner, ok := s.Owner(allocfn.Partition{Topic: "t", ID: 3}); ok {
			t.Error(owner)
		}
		if got := r.told(); got != "+ -, +t:1 -" {
			t.Error(got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.want(TriggerMembers, "")
		if got := r.told(); got != "+ -t:1" {
			t.Error(got)
		}
	})
}

func TestLoneChangeIsActedOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1", "t:2", "t:3")
		r.join("b")
		for i, names := range [][]string{{"a", "b"}, {"b"}, {"b", "c"}} {
			sleep(time.Minute)
			start := time.Now()
			r.join(names...)
			s := r.Snapshot()
			if len(s.Members) != len(names) || !s.At.Equal(start) {
				t.Errorf("change %d: members %v after %v", i, s.Members, s.At.Sub(start))
			}
		}
		r.stop()
	})
}

func TestStormIsOneRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0")
		r.join("b")
		sleep(time.Minute)
		before := r.published()
		names := []string{"b"}
		for i := range 50 {
			names = append(names, fmt.Sprintf("m%02d", i))
			r.join(names...)
			sleep(10 * time.Millisecond)
		}
		sleep(time.Minute)
		if n := r.published() - before; n != 2 {
			t.Errorf("%d rebalances, want 2", n)
		}
		if got := r.Snapshot().Members; len(got) != 51 {
			t.Errorf("%d members", len(got))
		}
		r.stop()
	})
}

func TestUnchangedViewIsNoRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0")
		r.join("a", "b")
		sleep(time.Minute)
		before := r.published()
		r.join("a", "b")
		r.partitions("t:0")
		sleep(time.Minute)
		if n := r.published() - before; n != 0 {
			t.Errorf("%d rebalances", n)
		}
		v := &party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{{Name: "a", Czxid: 2}, {Name: "b", Czxid: 1}}}
		r.show(v)
		if n := r.published() - before; n != 1 {
			t.Errorf("a came back under its name: %d rebalances", n)
		}
		r.stop()
	})
}

// TestViewsOfTwoIncarnationsAreNotMixed is the catching up after a loss.
func TestViewsOfTwoIncarnationsAreNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		old := r.inc
		r.want(TriggerInitial, "t:1")
		r.lose(session.ErrTrustLost)
		s := r.want(TriggerSession, "")
		if s.Joined || s.Incarnation != old || !errors.Is(s.Err, session.ErrTrustLost) {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if fmt.Sprint(s.Mapping()) != "map[a:map[t:[0]] b:map[t:[1]]]" {
			t.Error("the last good mapping is gone")
		}
		r.incarnate()
		r.join("b")
		sleep(time.Hour)
		if s := r.want(TriggerSession, ""); s.Incarnation != old || len(s.Members) != 2 {
			t.Errorf("mixed: %v", s.Members)
		}
		r.partitions("t:0", "t:1", "t:2")
		s = r.want(TriggerSession, "t:0 t:1 t:2")
		if s.Incarnation != r.inc || !s.Joined || s.Err != nil {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if got := r.told(); !strings.HasSuffix(got, "+t:1 -, + -t:1, +t:0 t:1 t:2 -") {
			t.Error(got)
		}
		// The same in another incarnation is another snapshot.
		r.incarnate()
		r.partitions("t:0", "t:1", "t:2")
		r.join("b")
		if s := r.want(TriggerSession, "t:0 t:1 t:2"); s.Incarnation != r.inc {
			t.Error("no snapshot of the new incarnation")
		}
		if err := r.failed(); !errors.Is(err, session.ErrTrustLost) {
			t.Error(err)
		}
		r.stop()
	})
}

func TestViewsOfAnEndedIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.lose(session.ErrSessionExpired)
		r.partitions("t:0")
		r.join("b")
		if s := r.want(TriggerInitial, ""); s.Joined || !errors.Is(s.Err, session.ErrSessionExpired) {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, session.ErrSessionExpired) {
			t.Error("ready:", err)
		}
		r.stop()
	})
}

func TestLeavingEmptiesTheOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		r.join("a")
		s := r.want(TriggerMembers, "")
		if s.Joined || fmt.Sprint(s.Mapping()) != "map[a:map[t:[0 1]]]" {
			t.Error(s.Mapping())
		}
		r.stop()
	})
}

// TestNamesakeIsNotUs: our name stands among the members, but it is not we.
func TestNamesakeIsNotUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1")
		r.show(&party.View{Incarnation: r.inc, Members: []party.Member{{Name: "a"}, {Name: "b"}}})
		s := r.want(TriggerInitial, "")
		if fmt.Sprint(s.Mapping()) != "map[a:map[t:[0]] b:map[t:[1]]]" {
			t.Error("others see another mapping than", s.Mapping())
		}
		r.stop()
	})
}

func TestNameTakenWhileWeOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0")
		r.join("b")
		r.want(TriggerInitial, "t:0")
		r.members.end <- fmt.Errorf("party: %w", ErrNameTaken)
		if err := <-r.ran; !errors.Is(err, ErrNameTaken) {
			t.Error(err)
		}
		s := r.want(TriggerMembers, "")
		if s.Joined || !errors.Is(s.Err, ErrNameTaken) || s.Incarnation != r.inc {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if got := r.told(); !strings.HasSuffix(got, "+ -t:0") {
			t.Error(got)
		}
		if err := r.Rebalance(t.Context()); !errors.Is(err, ErrStopped) || !errors.Is(err, ErrNameTaken) {
			t.Error("rebalance:", err)
		}
	})
}

func TestNameTakenBeforeAnythingWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.members.end <- ErrNameTaken
		if err := <-r.ran; !errors.Is(err, ErrNameTaken) {
			t.Error(err)
		}
		if s := r.Snapshot(); s == nil || s.Joined || !errors.Is(s.Err, ErrNameTaken) {
			t.Error(s)
		}
		if err := r.Ready(t.Context()); !errors.Is(err, ErrNameTaken) {
			t.Error("ready:", err)
		}
	})
}

func failing(name string, f func(allocfn.Input) (allocfn.Assignment, error)) allocfn.Func {
	return allocfn.Func{Name: name, Assign: f}
}

func TestFunctionFails(t *testing.T) {
	for name, bad := range map[string]func(allocfn.Input) (allocfn.Assignment, error){
		"error":    func(allocfn.Input) (allocfn.Assignment, error) { return nil, errors.New("no idea") },
		"panics":   func(allocfn.Input) (allocfn.Assignment, error) { panic("ouch") },
		"forgets":  func(allocfn.Input) (allocfn.Assignment, error) { return allocfn.Assignment{0, -1, 0}, nil },
		"short":    func(allocfn.Input) (allocfn.Assignment, error) { return allocfn.Assignment{0}, nil },
		"stranger": func(allocfn.Input) (allocfn.Assignment, error) { return allocfn.Assignment{0, 7, 0}, nil },
		"nil":      func(allocfn.Input) (allocfn.Assignment, error) { return nil, nil },
		"goexit":   func(allocfn.Input) (allocfn.Assignment, error) { runtime.Goexit(); return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) {
					o.PythonFunc = "mine"
					o.Func = failing("mine", func(in allocfn.Input) (allocfn.Assignment, error) {
						if len(in.Members) == 2 {
							return bad(in)
						}
						return allocfn.RoundRobin().Assign(in)
					})
				})
				r.run()
				r.partitions("t:0", "t:1", "t:2")
				r.join("b")
				r.want(TriggerInitial, "t:0 t:1 t:2")
				before := r.told()
				sleep(time.Minute)
				r.join("b", "c")
				s := r.want(TriggerMembers, "t:0 t:1 t:2")
				if !errors.Is(s.Err, ErrFuncFailed) || fmt.Sprint(s.Members) != "[b]" {
					t.Errorf("members %v, err %v", s.Members, s.Err)
				}
				if err := r.failed(); !errors.Is(err, ErrFuncFailed) {
					t.Error("OnError:", err)
				}
				if got := r.told(); got != "" {
					t.Errorf("told %q after %q", got, before)
				}
				if err := r.Rebalance(t.Context()); !errors.Is(err, ErrFuncFailed) {
					t.Error("rebalance:", err)
				}
				sleep(time.Minute)
				r.join("b", "c", "d")
				if s := r.want(TriggerMembers, "t:0"); s.Err != nil {
					t.Error(s.Err)
				}
				r.stop()
			})
		})
	}
}

// blocking returns a function that blocks, when two are members, until it gets
// something.
func blocking(release chan struct{}) allocfn.Func {
	return failing("mine", func(in allocfn.Input) (allocfn.Assignment, error) {
		if len(in.Members) == 2 {
			<-release
		}
		return allocfn.RoundRobin().Assign(in)
	})
}

func TestBlockedFunctionBlocksNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(o *Options) { o.PythonFunc, o.Func = "mine", blocking(release) })
		r.run()
		r.partitions("t:0", "t:1", "t:2")
		r.join("b")
		sleep(time.Minute)
		start := time.Now()
		r.join("b", "c")
		if s := r.Snapshot(); s.Err != nil {
			t.Error("too early:", s.Err)
		}
		sleep(10 * time.Second)
		s := r.want(TriggerMembers, "t:0 t:1 t:2")
		if !errors.Is(s.Err, ErrFuncFailed) || s.At.Sub(start) != computeTimeout {
			t.Errorf("after %v: %v", s.At.Sub(start), s.Err)
		}
		// A loss and a new incarnation go through, on the last good mapping.
		r.lose(session.ErrTrustLost)
		r.want(TriggerSession, "")
		r.incarnate()
		r.join("b", "c")
		r.partitions("t:0", "t:1", "t:2")
		s = r.want(TriggerSession, "t:0 t:1 t:2")
		if s.Incarnation != r.inc || !errors.Is(s.Err, ErrFuncFailed) {
			t.Error(s.Err)
		}
		// Leaving, too.
		r.join("c", "d", "e")
		r.want(TriggerMembers, "")
		before := r.published()
		// What comes at last is stale: it is not applied, the newest is.
		release <- struct{}{}
		s = r.want(TriggerSession, "")
		if s.Err != nil || fmt.Sprint(s.Members) != "[c d e]" || r.published() != before+1 {
			t.Errorf("members %v, err %v, %d snapshots", s.Members, s.Err, r.published()-before)
		}
		r.stop()
	})
}

// TestLeavingDoesNotWaitForTheFunction within the time that it has, too.
func TestLeavingDoesNotWaitForTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(o *Options) { o.PythonFunc, o.Func = "mine", blocking(release) })
		r.run()
		r.partitions("t:0", "t:1")
		r.join("b")
		sleep(time.Minute)
		r.join("b", "c")
		r.join("c")
		if s := r.want(TriggerMembers, ""); s.Joined || s.Err != nil {
			t.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		release <- struct{}{}
		r.want(TriggerMembers, "")
		r.stop()
	})
}

// TestOvertakenViews: a refresh brings newer views than those on their way.
func TestOvertakenViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.loop
		l.onMembers(&party.View{Version: 2})
		l.onMembers(&party.View{Version: 1})
		l.onSet(&sharedset.View{Version: 4})
		l.onSet(&sharedset.View{Version: 3})
		if l.members.Version != 2 || l.set.Version != 4 {
			t.Errorf("back to %d and %d", l.members.Version, l.set.Version)
		}
	})
}

func TestLateResultStillCountsIfNothingChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(o *Options) { o.PythonFunc, o.Func = "mine", blocking(release) })
		r.run()
		r.partitions("t:0", "t:1")
		r.join("b")
		sleep(time.Minute)
		r.join("b", "c")
		sleep(10 * time.Second)
		release <- struct{}{}
		if s := r.want(TriggerMembers, "t:0"); s.Err != nil {
			t.Error(s.Err)
		}
		r.stop()
	})
}

func TestFunctionThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(o *Options) { o.PythonFunc, o.Func = "mine", blocking(release) })
		r.run()
		r.partitions("t:0")
		r.join("b")
		sleep(time.Minute)
		r.join("b", "c")
		start := time.Now()
		if err := r.stop(); !errors.Is(err, ErrStuck) || time.Since(start) != defaultStopTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		close(release)
	})
}

func TestFuncMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Func, o.AlsoFuncs = allocfn.Range(), []allocfn.Func{allocfn.RoundRobin()} })
		r.run()
		r.partitions("t:0", "t:1")
		us := party.Member{Name: "b", Data: []byte(`{"v":1,"functions":["range","roundrobin"]}`)}
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{us}})
		if s := r.want(TriggerInitial, "t:0 t:1"); s.Func != "range" {
			t.Error(s.Func)
		}
		sleep(time.Minute)
		python := party.Member{Name: "c"}
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{us, python}})
		if s := r.want(TriggerMembers, "t:0"); s.Func != "roundrobin" || s.Err != nil {
			t.Error(s.Func, s.Err)
		}
		sleep(time.Minute)
		other := party.Member{Name: "d", Data: []byte(`{"v":1,"functions":["sticky"]}`)}
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{us, python, other}})
		s := r.want(TriggerMembers, "t:0")
		if !errors.Is(s.Err, ErrFuncMismatch) || s.Func != "roundrobin" {
			t.Error(s.Func, s.Err)
		}
		for _, part := range []string{`"b" can run range, roundrobin`, `"c" can run roundrobin`, `"d" can run sticky`} {
			if !strings.Contains(s.Err.Error(), part) {
				t.Errorf("%v does not say %s", s.Err, part)
			}
		}
		if err := r.failed(); !errors.Is(err, ErrFuncMismatch) {
			t.Error(err)
		}
		// A group that runs what we have not, before we join it.
		sleep(time.Minute)
		r.show(&party.View{Incarnation: r.inc, Members: []party.Member{other}})
		if s := r.want(TriggerMembers, ""); !errors.Is(s.Err, ErrFuncMismatch) {
			t.Error(s.Err)
		}
		r.stop()
	})
}

func TestBadRecordsAndItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1", "nonsense", "t:x")
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{
			{Name: "a", Data: []byte("\xff{")}, {Name: "b"}, {Name: "c", Err: errors.New("70000 bytes")},
		}})
		s := r.want(TriggerInitial, "t:1")
		if !errors.Is(s.Err, allocfn.ErrItem) || !strings.Contains(s.Err.Error(), "nonsense") || !strings.Contains(s.Err.Error(), "t:x") {
			t.Error(s.Err)
		}
		err := r.failed()
		if !errors.Is(err, allocfn.ErrItem) || !errors.Is(err, ErrBadRecord) || !strings.Contains(err.Error(), "70000") {
			t.Error(err)
		}
		sleep(time.Minute)
		r.partitions("t:0", "t:1", "t:2", "t:x")
		if err := r.failed(); strings.Contains(fmt.Sprint(err), "nonsense") || !errors.Is(err, allocfn.ErrItem) {
			t.Error("second report:", err)
		}
		sleep(time.Minute)
		r.partitions("t:0", "t:1", "t:2")
		if s := r.Snapshot(); s.Err != nil || r.failed() != nil {
			t.Error(s.Err)
		}
		r.stop()
	})
}

func TestUnreadableSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		sleep(time.Minute)
		r.told()
		garbage := errors.New("not JSON")
		r.showSet(&sharedset.View{Items: []string{"t:0", "t:1"}, Exists: true, Czxid: 1, Err: garbage})
		if s := r.want(TriggerPartitions, "t:1"); !errors.Is(s.Err, garbage) || !s.Joined {
			t.Error(s.Err)
		}
		sleep(time.Minute)
		r.join("b")
		if s := r.want(TriggerMembers, "t:0 t:1"); !errors.Is(s.Err, garbage) {
			t.Error(s.Err)
		}
		sleep(time.Minute)
		r.partitions("t:0", "t:1")
		if s := r.want(TriggerPartitions, "t:0 t:1"); s.Err != nil {
			t.Error(s.Err)
		}
		if got := r.told(); got != "+t:0 -" {
			t.Errorf("told %q", got)
		}
		if err := r.failed(); err == nil || err.Error() != garbage.Error() {
			t.Errorf("OnError was told %v", err)
		}
		r.stop()
	})
}

func TestUnreadableFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		garbage := errors.New("not JSON")
		r.join("b")
		r.showSet(&sharedset.View{Exists: true, Czxid: 1, Err: garbage})
		if s := r.want(TriggerInitial, ""); !errors.Is(s.Err, garbage) {
			t.Error(s.Err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Ready(ctx); !errors.Is(err, garbage) {
			t.Error("ready:", err)
		}
		r.partitions("t:0")
		if s := r.want(TriggerPartitions, "t:0"); s.Err != nil {
			t.Error(s.Err)
		}
		if err := r.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		r.stop()
	})
}

// TestUnreadableWhileJoining: the set is repaired to what it was, so that there
// is nothing to compute anew but that all is ready now.
func TestUnreadableWhileJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.run()
		r.join()
		r.partitions("t:0")
		garbage := errors.New("not JSON")
		r.showSet(&sharedset.View{Items: []string{"t:0"}, Exists: true, Czxid: r.czxid, Err: garbage})
		r.join("b")
		if s := r.want(TriggerMembers, "t:0"); !errors.Is(s.Err, garbage) {
			t.Error(s.Err)
		}
		r.partitions("t:0")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Ready(ctx); err != nil {
			t.Error(err)
		}
		r.stop()
	})
}
