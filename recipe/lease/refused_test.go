package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// refuse has the server refuse what matches, for some time. It returns how many requests that were.
func (w *world) refuse(d time.Duration, match func(zktest.Request) bool) *int {
	n, until := new(int), time.Now().Add(d)
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if !match(*r) || !time.Now().Before(until) {
			return zktest.Action{}
		}
		*n++
		return zktest.Action{Err: zktest.ErrNoAuth}
	})
	return n
}

// A release that is refused for a while removes the record after that.
func TestReleaseOutlastsRefusals(t *testing.T) {
	for name, match := range map[string]func(zktest.Request) bool{
		"the removal":    isRecord,
		"the reading":    func(r zktest.Request) bool { return r.Op == zktest.OpGetData && r.Path == node },
		"the inner lock": is(zktest.OpGetChildren2),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := w.by("a", time.Hour)
				h := w.obtain(l)
				n := w.refuse(time.Minute, match)
				began := time.Now()
				if err := h.Release(w.Within(10 * time.Second)); !errors.Is(err, context.DeadlineExceeded) {
					w.Errorf("released while it is refused: %v", err)
				}
				w.release(h)
				took := time.Since(began)
				w.Srv.SetHook(nil)
				w.wantHolder("")
				if took < time.Minute || took > time.Minute+6*time.Second || *n < 10 || *n > 60 {
					w.Errorf("refused %d times, released after %v", *n, took)
				}
				w.release(w.obtain(w.lease("b")))
			})
		})
	}
}

// A renewal may not read the record: it says so, and the hold lasts as long as before.
func TestRenewRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("a"))
		end := h.End()
		time.Sleep(10 * time.Second)
		w.Refuse(zktest.ErrNoAuth, func(r zktest.Request) bool { return r.Op == zktest.OpGetData && r.Path == node })
		if err := h.Renew(w.Context()); !errors.Is(err, session.ErrNoAuth) || !h.Valid() || h.End() != end {
			w.Errorf("renewed: %v, valid: %v, until %v", err, h.Valid(), h.End())
		}
	})
}

// A release that is refused for longer than the lease lasts ends with the lease.
func TestReleaseRefusedToTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("a"))
		began := time.Now()
		w.refuse(time.Hour, isRecord)
		w.release(h)
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			w.Errorf("took %v", took)
		}
		w.Srv.SetHook(nil)
		w.obtain(w.lease("b"))
	})
}

// A server answers what obtains and releases with an error that does not say what was done. Each is tried again, after pauses.
func TestUnclearAnswers(t *testing.T) {
	for name, match := range map[string]func(zktest.Request) bool{"the comparison of clocks": is(zktest.OpSetData), "the removal": isRecord} {
		for _, code := range []zktest.Error{zktest.ErrSystem, zktest.ErrOperationTimeout} {
			inWorld(t, func(w *world) {
				l := w.by("a", time.Hour)
				h := w.obtain(l)
				if name != "the removal" {
					w.release(h)
				}
				w.Net.Client("a").Delay(10 * time.Millisecond)
				n, until := 0, time.Now().Add(time.Minute)
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if !match(*r) || !time.Now().Before(until) {
						return zktest.Action{}
					}
					n++
					return zktest.Action{Err: code}
				})
				if name != "the removal" {
					h = w.obtain(l)
				}
				w.release(h)
				w.wantHolder("")
				if n < 10 || n > 60 || time.Since(until) > 6*time.Second {
					w.Errorf("%s, %v: %d times, done %v after it was over", name, code, n, time.Since(until))
				}
			})
		}
	}
}
