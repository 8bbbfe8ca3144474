package recipetest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// World is a test with a server on a virtual network. A package embeds it in a world of its own, with methods for what the
// package tests. It belongs in a bubble.
type World struct {
	*testing.T

	Srv *zktest.Server
	Net *zktest.Network
}

// NewWorld starts a server, which runs until the test ends.
func NewWorld(t *testing.T) *World {
	t.Helper()
	srv, nw := zktest.StartVirtual(t, zktest.Options{})
	return &World{T: t, Srv: srv, Net: nw}
}

// InWorld runs a test in a bubble, with a world of its own.
func InWorld(t *testing.T, test func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(NewWorld(t)) })
}

// Stoppable runs a session that connects as the named client, until the test or stop ends it.
func (w *World) Stoppable(name string) (s *session.Session, stop func()) {
	w.Helper()
	return Stoppable(w, w.Net, name, session.Options{})
}

// Incarnation returns the session's incarnation. It waits until there is one.
func (w *World) Incarnation(s *session.Session) *session.Incarnation {
	w.Helper()
	inc, err := s.Incarnation(w.Context())
	w.Must(err)
	return inc
}

// Session runs a session that connects as the named client, until the test ends.
func (w *World) Session(name string) *session.Session {
	w.Helper()
	return Session(w, w.Net, name)
}

// ID returns the ZooKeeper session id of a session.
func (w *World) ID(s *session.Session) int64 {
	w.Helper()
	return ID(w, s)
}

// Must ends the test if there is an error.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// Check fails the test if there is an error. It may be called from any goroutine.
func (w *World) Check(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

// Within returns a context that ends after d, or with the test.
func (w *World) Within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), d)
	w.Cleanup(cancel)
	return ctx
}

// Kill ends a session's ZooKeeper session.
func (w *World) Kill(s *session.Session) {
	w.Helper()
	w.Srv.KillSession(w.ID(s))
}

// LoseTrust ends the trust of a client for a moment, and waits for the consequences.
func (w *World) LoseTrust(client string, inc *session.Incarnation) {
	w.Helper()
	LoseTrust(w, w.Net.Client(client), inc)
	<-time.After(5 * time.Second)
}

// Release releases a hold.
func (w *World) Release(h Releaser) {
	w.Helper()
	w.Check(h.Release(w.Within(time.Minute)))
}

// Ended waits for the end of a hold, and checks its cause.
func (w *World) Ended(h Hold, want error) {
	w.Helper()
	Ended(w, h, time.Minute, want)
}

// Blocked returns what blocked a call, which has failed for that reason.
func (w *World) Blocked(err, why error) recipe.BlockedError {
	w.Helper()
	blocked, ok := errors.AsType[*recipe.BlockedError](err)
	if !ok || !errors.Is(err, why) {
		w.Errorf("got %v, want an error that names what blocked the call, and %v", err, why)
		return recipe.BlockedError{}
	}
	return *blocked
}

// Step is what happens to the first request that matches.
type Step struct {
	Match func(r zktest.Request) bool
	Do    func(r *zktest.Request) zktest.Action
}

// Meets returns a step in which the request meets an action.
func Meets(action zktest.Action, match func(r zktest.Request) bool) Step {
	return Step{match, func(*zktest.Request) zktest.Action { return action }}
}

// LosesReply returns a step in which the request is executed and its reply lost.
func LosesReply(match func(r zktest.Request) bool) Step {
	return Meets(zktest.Action{LoseReply: true}, match)
}

// Before returns a step in which do is called before the request is executed.
func Before(match func(r zktest.Request) bool, do func()) Step {
	return Step{match, func(*zktest.Request) zktest.Action {
		do()
		return zktest.Action{}
	}}
}

// Steps has the steps happen in their order, each at another request. The test fails if one of them has not happened.
func (w *World) Steps(steps ...Step) {
	var mu sync.Mutex // requests of several clients come at the same time
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		mu.Lock()
		if len(steps) == 0 || !steps[0].Match(*r) {
			mu.Unlock()
			return zktest.Action{}
		}
		step := steps[0]
		steps = steps[1:]
		mu.Unlock()
		return step.Do(r)
	})
	w.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if len(steps) > 0 {
			w.Errorf("%d steps have not happened: nothing was tested", len(steps))
		}
	})
}

// Refuse has the server refuse all requests that match, until another hook is set.
func (w *World) Refuse(with zktest.Error, match func(r zktest.Request) bool) {
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if match(*r) {
			return zktest.Action{Err: with}
		}
		return zktest.Action{}
	})
}

// Unplug cuts a client off. Heal ends that.
func (w *World) Unplug(name string) *zktest.Client {
	client := w.Net.Client(name)
	client.Refuse()
	client.Cut()
	return client
}

// LongWaits returns a logger, and a function that checks how many lines since it was called last say that a call is still
// waiting, and that they name what blocks it and the data of that. After five minutes there are four such lines. Where there
// should be none, nothing else may have been logged either.
func (w *World) LongWaits() (log *slog.Logger, said func(times int, blocker, data string)) {
	var buf bytes.Buffer
	return slog.New(slog.NewTextHandler(&buf, nil)), func(times int, blocker, data string) {
		w.Helper()
		synctest.Wait()
		text := buf.String()
		buf.Reset()
		if times == 0 {
			if text != "" {
				w.Errorf("want nothing:\n%s", text)
			}
			return
		}
		named := strings.Contains(text, "blocker.path="+blocker) && strings.Contains(text, "blocker.data="+data)
		if strings.Count(text, "still waiting") != times || !named {
			w.Errorf("want %d lines that %s with %q is in the way:\n%s", times, blocker, data, text)
		}
	}
}

// Write writes a znode as an operator would. If the znode is missing Write creates it first, so its version is at least 1. It may
// be called from any goroutine, as Check.
func (w *World) Write(path, data string) {
	w.Helper()
	if _, _, ok := w.Srv.Get(path); !ok {
		w.Check(w.Srv.Create(path, nil))
	}
	w.Check(w.Srv.Set(path, []byte(data)))
}

// Data returns the data of a znode, which must exist.
func (w *World) Data(path string) string {
	w.Helper()
	data, _, ok := w.Srv.Get(path)
	if !ok {
		w.Fatalf("there is no %s", path)
	}
	return string(data)
}
