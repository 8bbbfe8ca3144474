package partitioner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const errQuota zktest.Error = -125

// refuse has the server refuse client a all requests in the party that may be refused.
func (w *world) refuse(with zktest.Error, may func(r zktest.Request) bool) {
	w.Refuse(with, func(r zktest.Request) bool { return r.Client == "a" && strings.Contains(r.Path, "/party") && may(r) })
}

func each(zktest.Request) bool { return true }

// ends waits for the end of Run, and returns how long it took and Run's error.
func (r *running) ends() (time.Duration, error) {
	r.w.Helper()
	start := time.Now()
	select {
	case err := <-r.done:
		return time.Since(start), err
	case <-time.After(time.Minute):
		r.w.Fatal("Run has not returned within a minute")
		return 0, nil
	}
}

// A first join that is refused ends Run with the error: at once if no znode was created, and after a session timeout if there is
// one that may not be seen.
func TestFirstJoinRefused(t *testing.T) {
	for name, may := range map[string]func(r zktest.Request) bool{
		"all":    each,
		"create": func(r zktest.Request) bool { return r.Op == zktest.OpCreate },
		"read":   func(r zktest.Request) bool { return r.Op == zktest.OpExists },
		"hidden": func() func(r zktest.Request) bool {
			creates := 0 // the first one finds no directory
			return func(r zktest.Request) bool {
				if !strings.Contains(r.Path, "/party/") {
					return false
				}
				if r.Op == zktest.OpCreate {
					creates++
				}
				return creates > 1 && r.Op == zktest.OpExists
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.refuse(zktest.ErrNoAuth, may)
				m := w.member("a", []string{"0"}, partitioner.Options{})
				took, err := w.run(m, nil).ends()
				hidden := name == "hidden"
				if !errors.Is(err, session.ErrNoAuth) || errors.Is(err, partitioner.ErrUnfinished) != hidden {
					w.Errorf("Run returned %v", err)
				}
				if limit := m.session.Timeout() + time.Second; hidden && took > limit || !hidden && took > time.Second {
					w.Errorf("Run returned after %v", took)
				}
				w.Srv.SetHook(nil)
				time.Sleep(5 * time.Second)
				w.clean()
				r := w.run(m, nil)
				r.wantCall("0")
				r.stop()
			})
		})
	}
}

// A member in Run that has joined once is refused for a while: as it joins again, and as the set is divided again. It goes on
// when it is allowed to. Meanwhile the end of its context ends it at once.
func TestRunOutlastsRefusals(t *testing.T) {
	for name, with := range map[string]zktest.Error{"acl": zktest.ErrNoAuth, "quota": errQuota} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.member("a", []string{"0", "1"}, partitioner.Options{})
				r := w.run(m, nil)
				r.wantCall("0", "1")
				time.Sleep(time.Minute)

				w.refuse(with, each)
				w.Kill(m.session)
				time.Sleep(time.Minute)
				w.Srv.SetHook(nil)
				r.wantCall("0", "1")
				time.Sleep(time.Minute)

				w.refuse(with, each)
				b := w.run(w.member("b", []string{"0", "1"}, partitioner.Options{}), nil)
				time.Sleep(time.Minute)
				w.Srv.SetHook(nil)
				r.wantCall("0")
				b.wantCall("1")
				b.stop()

				w.refuse(with, each)
				w.Kill(m.session)
				time.Sleep(time.Minute)
				r.cancel()
				if took, err := r.ends(); err != nil || took > time.Second {
					w.Errorf("Run returned %v after %v", err, took)
				}
				w.Srv.SetHook(nil)
			})
		})
	}
}

// A member that was started is refused what it reads as the set is divided: it goes on when it may read again.
func TestStartedOutlastsRefusals(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("a", "0")
		m.wantItems("0")
		w.refuse(zktest.ErrNoAuth, each)
		other := w.join("b", "0")
		m.wait(partitioner.Release)
		m.releaseSet()
		time.Sleep(time.Minute)
		if acquired, err := m.WaitForAcquire(w.Context()); acquired || err != nil {
			w.Errorf("acquired: %v, %v", acquired, err)
		}
		w.Srv.SetHook(nil)
		other.finish()
		m.wantItems("0")
	})
}

// A function of the program that fails ends Run, even if its error is one of the servers'.
func TestFunctionIsNoRefusal(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("a", []string{"0"}, partitioner.Options{Func: func(string, []string, []string) ([]string, error) {
			return nil, session.ErrNoAuth
		}})
		if _, err := w.run(m, nil).ends(); !errors.Is(err, partitioner.ErrFunction) {
			w.Errorf("Run returned %v", err)
		}
	})
}
