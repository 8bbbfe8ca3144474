package party_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms that executions here do without the rules that answer them (test/mutants).
const (
	vanishes    = "who has joined vanishes"
	pythonFails = "Python's join fails"
	unreadable  = "kazoo raises an exception when it reads what we have written"
)

// §8: a member leaves, the server does not remove its znode yet, and it joins again. The name is the same, so that the znode
// would be taken for the new one, and be removed under it.
func TestJoinBesideTheLeave(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("g"), "p1")
		must(w, p.Join(w.Context()))
		var free, joined atomic.Bool
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op != zktest.OpDelete || r.Path != p.Node():
			case !free.Load():
				return zktest.Action{Err: zktest.ErrThrottled}
			case joined.Load():
				w.Error(vanishes + ": by its own leave")
			}
			return zktest.Action{}
		})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := p.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Fatalf("left: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			err := p.Join(w.Context())
			joined.Store(true)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		free.Store(true)
		must(w, <-done)
		time.Sleep(5 * time.Second)
		w.unhook()
		wantMembers(w, p, "p1")
		must(w, p.Leave(w.Context()))
	})
}

// §15, ghosts: a znode of a session that is about to end bears our name. It is waited for, not taken for ours: that it is there
// says nothing about the next moment.
func TestJoinBesideTheOldZnode(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("g"), "p1")
		stopOld := w.hold("old", p.Node(), "p1")
		go func() {
			time.Sleep(5 * time.Second)
			stopOld()
		}()
		start := time.Now()
		must(w, p.Join(w.Context()))
		if _, stat, ok := w.Srv.Get(p.Node()); !ok || stat.EphemeralOwner != w.sessionOf("g") {
			w.Errorf("%s: after %v: the znode is of session %#x", vanishes, time.Since(start), stat.EphemeralOwner)
		} else if d := time.Since(start); d < 5*time.Second {
			w.Errorf("joined after %v", d)
		}
		time.Sleep(10 * time.Second)
		wantMembers(w, p, "p1")
		must(w, p.Leave(w.Context()))
	})
}

// §13: somebody deletes the party's directory. A Python process that has made it once does not make it again: it can join because
// our member, who comes back, has.
func TestDirectoryDeleted(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		must(w, w.Srv.Create(kazooDir, nil))
		p := in(w.session("g"), "p1")
		must(w, p.Join(w.Context()))
		python := w.session("python")
		inc := incarnation(w, python)
		must(w, w.Srv.Delete(kazooDir))
		time.Sleep(time.Second)
		_, err := inc.Create(w.Context(), kazooDir+"/0123456789abcdef0123456789abcdef__party__", []byte("p2"), session.Ephemeral)
		switch {
		case errors.Is(err, session.ErrNoNode):
			w.Errorf("%s: %v", pythonFails, err)
		case err != nil || !p.IsMember():
			w.Errorf("%v, member: %v", err, p.IsMember())
		}
		must(w, p.Leave(w.Context()))
	})
}

// §13: an identifier that is no UTF-8. Who iterates over kazoo's Party decodes those of all, and gets UnicodeDecodeError. New
// refuses it, and is given another. A ShallowParty's is a name of a znode, which must be UTF-8 anyhow.
func TestIdentifierThatPythonCannotRead(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("g")
		p, err := party.NewKazooParty(s, kazooDir, party.KazooOptions{Identifier: "z\xfcrich"})
		if err != nil {
			p, err = party.NewKazooParty(s, kazooDir, party.KazooOptions{Identifier: "z\u00fcrich"})
		}
		must(w, err)
		must(w, p.Join(w.Context()))
		if data, _, ok := w.Srv.Get(p.Node()); !ok || !utf8.Valid(data) { // as strict as Python's decode("utf-8")
			w.Errorf("%s: %q of %s", unreadable, data, p.Node())
		}
		must(w, p.Leave(w.Context()))
	})
}
