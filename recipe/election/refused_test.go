package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	errQuota   zktest.Error = -125
	errUnknown zktest.Error = -9999
)

// refuse has the server refuse a client all requests in the election.
func (w *world) refuse(client string, with zktest.Error) {
	w.Refuse(with, func(r zktest.Request) bool { return r.Client == client && strings.HasPrefix(r.Path, path) })
}

func wantErr(w *world, err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("got %v, want %v", err, want)
	}
}

// goesOn fails if the Run has returned.
func (c *candidate) goesOn(w *world) {
	w.Helper()
	select {
	case err := <-c.done:
		w.Fatalf("Run has returned: %v", err)
	default:
	}
}

// leadsOnce waits until the candidate leads, and ends its term.
func (c *candidate) leadsOnce(w *world) {
	w.Helper()
	select {
	case <-c.leads:
	case <-time.After(time.Minute):
		w.Fatal("does not lead when it may again")
	}
	c.answer <- nil
	wantErr(w, <-c.done, nil)
}

// The first candidate of a handle that is refused ends Run.
func TestFirstCandidateRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuse("other", zktest.ErrNoAuth)
		c := w.run(w.election(w.Session("other"), "other"))
		select {
		case err := <-c.done:
			wantErr(w, err, session.ErrNoAuth)
		case <-time.After(time.Minute):
			w.Error("the first candidate is refused, and Run goes on")
		}
		w.Srv.SetHook(nil)
	})
}

// A Run that was a candidate goes on when it is refused: as its session expires, as it may read the leader no more, and as it
// begins anew. It leads when it is allowed to, and its context ends it meanwhile.
func TestCandidateRefused(t *testing.T) {
	for name, with := range map[string]zktest.Error{"acl": zktest.ErrNoAuth, "quota": errQuota, "another": errUnknown} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				leader := w.run(w.election(w.Session("leader"), "leader"))
				<-leader.leads
				s := w.Session("other")
				e := w.election(s, "other")
				c := w.run(e)
				time.Sleep(time.Minute)
				w.refuse("other", with)
				w.Kill(s)
				time.Sleep(time.Minute)
				c.goesOn(w)
				w.Srv.SetHook(nil)
				time.Sleep(10 * time.Second)

				w.refuse("other", with)
				leader.answer <- nil
				time.Sleep(time.Minute)
				c.goesOn(w)
				w.Srv.SetHook(nil)
				c.leadsOnce(w)

				w.refuse("other", with)
				c = w.run(e)
				time.Sleep(time.Minute)
				c.goesOn(w)
				w.Srv.SetHook(nil)
				c.leadsOnce(w)

				w.refuse("other", with)
				c = w.run(e)
				time.Sleep(time.Minute)
				start := time.Now()
				c.stop(errTest)
				wantErr(w, <-c.done, errTest)
				if took := time.Since(start); took > 0 {
					w.Errorf("ended after %v", took)
				}
				w.Srv.SetHook(nil)
			})
		})
	}
}

// Observe goes on after a refusal, once it has yielded a leader.
func TestObserverRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancelCause(w.Context())
		defer cancel(nil)
		var seen []string
		for leader, err := range w.election(w.Session("observer"), "").Observe(ctx) {
			if err != nil {
				wantErr(w, err, errTest)
				break
			}
			seen = append(seen, leader.Identifier)
			switch len(seen) {
			case 1:
				w.refuse("observer", zktest.ErrNoAuth)
				w.run(w.election(w.Session("one"), "one"))
				time.AfterFunc(time.Minute, func() { w.Srv.SetHook(nil) })
			case 2:
				cancel(errTest)
			}
		}
		if len(seen) != 2 || seen[1] != "one" {
			w.Errorf("leaders seen: %q", seen)
		}
	})
}
