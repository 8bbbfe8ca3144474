package recipetest

import (
	"testing"
	"testing/synctest"

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

// Write writes a znode as an operator would. If the znode is missing Write creates it first, so its version is at least 1.
func (w *World) Write(path, data string) {
	w.Helper()
	if _, _, ok := w.Srv.Get(path); !ok {
		if err := w.Srv.Create(path, nil); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.Srv.Set(path, []byte(data)); err != nil {
		w.Fatal(err)
	}
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
