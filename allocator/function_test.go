package allocator

import (
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
	"github.com/kielgo/kiel/status"
)

func failing(name string, f func(allocfn.Input) (allocfn.Assignment, error)) allocfn.Func {
	return allocfn.Func{Name: name, Assign: f}
}

func TestFunctionFails(t *testing.T) {
	says := map[string]string{
		"error":  "allocator: allocation function mine: no idea",
		"panics": `allocator: allocation function mine panicked: "ouch"`,
		"goexit": "allocator: allocation function ended its goroutine",
	}
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
				r.begin("t:0", "t:1", "t:2")
				r.want(status.Started, "t:0 t:1 t:2")
				before := r.told()
				sleep(time.Minute)
				r.join("b", "c")
				s := r.want(status.Started, "t:0 t:1 t:2")
				if !errors.Is(s.Err, ErrFuncFailed) || fmt.Sprint(s.Members) != "[b]" {
					t.Errorf("members %v, err %v", s.Members, s.Err)
				}
				if want := says[name]; want != "" && s.Err.Error() != want {
					t.Errorf("got %v, want %s", s.Err, want)
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
				if s := r.want(status.MemberJoined, "t:0"); s.Err != nil {
					t.Error(s.Err)
				}
				r.stop()
			})
		})
	}
}

// blocking returns a function that blocks, when two are members, until it gets something.
func blocking(release chan struct{}) allocfn.Func {
	return failing("mine", func(in allocfn.Input) (allocfn.Assignment, error) {
		if len(in.Members) == 2 {
			<-release
		}
		return allocfn.RoundRobin().Assign(in)
	})
}

// inBlockedRig runs a test in a bubble, with a function that waits for release once its member is not alone.
func inBlockedRig(t *testing.T, test func(r *rig, release chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(o *Options) { o.PythonFunc, o.Func = "mine", blocking(release) })
		test(r, release)
		r.stop()
	})
}

func TestBlockedFunctionBlocksNothingElse(t *testing.T) {
	inBlockedRig(t, func(r *rig, release chan struct{}) {
		r.begin("t:0", "t:1", "t:2")
		sleep(time.Minute)
		start := time.Now()
		r.join("b", "c")
		if s := r.Snapshot(); s.Err != nil {
			r.Error("too early:", s.Err)
		}
		sleep(10 * time.Second)
		s := r.want(status.Started, "t:0 t:1 t:2")
		if !errors.Is(s.Err, ErrFuncFailed) || s.At.Sub(start) != computeTimeout {
			r.Errorf("after %v: %v", s.At.Sub(start), s.Err)
		}
		// A loss and a new incarnation go through, on the last good mapping.
		r.lose(session.ErrTrustLost)
		r.want(status.Started, "")
		r.incarnate()
		r.join("b", "c")
		r.partitions("t:0", "t:1", "t:2")
		s = r.want(status.Started, "t:0 t:1 t:2")
		if s.Incarnation != r.inc || !errors.Is(s.Err, ErrFuncFailed) {
			r.Error(s.Err)
		}
		// Leaving, too.
		r.join("c", "d", "e")
		r.want(status.Started, "")
		before := r.published()
		// What comes at last is stale: it is not applied, the newest is.
		release <- struct{}{}
		s = r.want(status.SessionLost, "")
		if s.Err != nil || fmt.Sprint(s.Members) != "[c d e]" || r.published() != before+1 {
			r.Errorf("members %v, err %v, %d snapshots", s.Members, s.Err, r.published()-before)
		}
	})
}

// TestLeavingDoesNotWaitForTheFunction within the time that it has, too.
func TestLeavingDoesNotWaitForTheFunction(t *testing.T) {
	inBlockedRig(t, func(r *rig, release chan struct{}) {
		r.begin("t:0", "t:1")
		sleep(time.Minute)
		r.join("b", "c")
		r.join("c")
		if s := r.want(status.Started, ""); s.Joined || s.Err != nil {
			r.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		release <- struct{}{}
		r.want(status.Stopped, "")
	})
}

func TestLateResultStillCountsIfNothingChanged(t *testing.T) {
	inBlockedRig(t, func(r *rig, release chan struct{}) {
		r.begin("t:0", "t:1")
		sleep(time.Minute)
		r.join("b", "c")
		sleep(10 * time.Second)
		release <- struct{}{}
		if s := r.want(status.MemberJoined, "t:0"); s.Err != nil {
			r.Error(s.Err)
		}
	})
}

func TestFunctionThatNeverReturns(t *testing.T) {
	inBlockedRig(t, func(r *rig, release chan struct{}) {
		r.begin("t:0")
		sleep(time.Minute)
		r.join("b", "c")
		start := time.Now()
		if err := r.stop(); !errors.Is(err, ErrStuck) || time.Since(start) != defaultStopTimeout {
			r.Errorf("after %v: %v", time.Since(start), err)
		}
		close(release)
	})
}

func TestFuncMismatch(t *testing.T) {
	inRig(t, func(o *Options) { o.Func, o.AlsoFuncs = allocfn.Range(), []allocfn.Func{allocfn.RoundRobin()} }, func(r *rig) {
		r.partitions("t:0", "t:1")
		us := party.Member{Name: "b", Data: []byte(`{"v":1,"functions":["range","roundrobin"]}`)}
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{us}})
		if s := r.want(status.Started, "t:0 t:1"); s.Func != "range/1" {
			r.Error(s.Func)
		}
		sleep(time.Minute)
		python := party.Member{Name: "c"}
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{us, python}})
		if s := r.want(status.FunctionChanged, "t:0"); s.Func != "roundrobin/1" || s.Err != nil {
			r.Error(s.Func, s.Err)
		}
		sleep(time.Minute)
		other := party.Member{Name: "d", Data: []byte(`{"v":1,"functions":["sticky"]}`)}
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{us, python, other}})
		s := r.want(status.FunctionChanged, "t:0")
		if !errors.Is(s.Err, ErrFuncMismatch) || s.Func != "roundrobin/1" {
			r.Error(s.Func, s.Err)
		}
		for _, part := range []string{`"b" can run range/1, roundrobin/1`, `"c" can run roundrobin/1`, `"d" can run sticky/1`} {
			if !strings.Contains(s.Err.Error(), part) {
				r.Errorf("%v does not say %s", s.Err, part)
			}
		}
		if err := r.failed(); !errors.Is(err, ErrFuncMismatch) {
			r.Error(err)
		}
		// A group that runs what we have not, before we join it.
		sleep(time.Minute)
		r.show(&party.View{Incarnation: r.inc, Members: []party.Member{other}})
		if s := r.want(status.FunctionChanged, ""); !errors.Is(s.Err, ErrFuncMismatch) {
			r.Error(s.Err)
		}
	})
}
