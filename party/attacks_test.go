package party_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms that executions here do.
const (
	vanishes    = "who has joined vanishes"
	pythonFails = "Python's join fails"
	unreadable  = "kazoo raises an exception when it reads what we have written"
)

// attackBoth runs an execution on both kinds of kazoo's parties. It must do no harm; without the rule that answers it it does
// (test/mutants).
func attackBoth(t *testing.T, execution func(t *testing.T, c *cluster, in func(*session.Session) crowd)) {
	t.Helper()
	for kind, newParty := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				execution(t, newCluster(t), func(s *session.Session) crowd {
					p, err := newParty(s, party.KazooOptions{Identifier: "p1"})
					must(t, err)
					return p
				})
			})
		})
	}
}

// recipe-attacks.md §8: a member leaves, the server does not remove its znode yet, and it joins again. The name is the same, so
// that the znode would be taken for the new one, and be removed under it.
func TestJoinBesideTheLeave(t *testing.T) {
	attackBoth(t, func(t *testing.T, c *cluster, in func(*session.Session) crowd) {
		s, _ := c.session("g")
		p := in(s)
		must(t, p.Join(t.Context()))
		var free, joined atomic.Bool
		c.srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op != zktest.OpDelete || r.Path != p.Node():
			case !free.Load():
				return zktest.Action{Err: zktest.ErrThrottled}
			case joined.Load():
				t.Error(vanishes + ": by its own leave")
			}
			return zktest.Action{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("left: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			err := p.Join(t.Context())
			joined.Store(true)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		free.Store(true)
		must(t, <-done)
		time.Sleep(5 * time.Second)
		c.unhook()
		wantMembers(t, p, "p1")
		must(t, p.Leave(t.Context()))
	})
}

// recipe-attacks.md §15, ghosts: a znode of a session that is about to end bears our name. It is waited for, not taken for
// ours: that it is there says nothing about the next moment.
func TestJoinBesideTheOldZnode(t *testing.T) {
	attackBoth(t, func(t *testing.T, c *cluster, in func(*session.Session) crowd) {
		s, _ := c.session("g")
		p := in(s)
		old, stopOld := c.session("old")
		inc := incarnation(c, old)
		must(t, inc.EnsurePath(c.Context(), kazooDir))
		_, err := inc.Create(c.Context(), p.Node(), []byte("p1"), session.Ephemeral)
		must(t, err)
		go func() {
			time.Sleep(5 * time.Second)
			stopOld()
		}()
		start := time.Now()
		must(t, p.Join(t.Context()))
		if _, stat, ok := c.srv.Get(p.Node()); !ok || stat.EphemeralOwner != c.sessionOf("g") {
			t.Errorf("%s: after %v: the znode is of session %#x", vanishes, time.Since(start), stat.EphemeralOwner)
		} else if d := time.Since(start); d < 5*time.Second {
			t.Errorf("joined after %v", d)
		}
		time.Sleep(10 * time.Second)
		wantMembers(t, p, "p1")
		must(t, p.Leave(t.Context()))
	})
}

// recipe-attacks.md §13: somebody deletes the party's directory. A Python process that has made it once does not make it
// again: it can join because our member, who comes back, has.
func TestDirectoryDeleted(t *testing.T) {
	attackBoth(t, func(t *testing.T, c *cluster, in func(*session.Session) crowd) {
		must(t, c.srv.Create(kazooDir, nil))
		s, _ := c.session("g")
		p := in(s)
		must(t, p.Join(t.Context()))
		python, _ := c.session("python")
		inc := incarnation(c, python)
		must(t, c.srv.Delete(kazooDir))
		time.Sleep(time.Second)
		_, err := inc.Create(c.Context(), kazooDir+"/0123456789abcdef0123456789abcdef__party__", []byte("p2"), session.Ephemeral)
		switch {
		case errors.Is(err, session.ErrNoNode):
			t.Errorf("%s: %v", pythonFails, err)
		case err != nil || !p.IsMember():
			t.Errorf("%v, member: %v", err, p.IsMember())
		}
		must(t, p.Leave(t.Context()))
	})
}

// recipe-attacks.md §13: an identifier that is no UTF-8. Who iterates over kazoo's Party decodes those of all, and gets
// UnicodeDecodeError. New refuses it, and is given another. A ShallowParty's is a name of a znode, which must be UTF-8 anyhow.
func TestIdentifierThatPythonCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.session("g")
		p, err := party.NewKazooParty(s, kazooDir, party.KazooOptions{Identifier: "z\xfcrich"})
		if err != nil {
			p, err = party.NewKazooParty(s, kazooDir, party.KazooOptions{Identifier: "z\u00fcrich"})
		}
		must(t, err)
		must(t, p.Join(t.Context()))
		if data, _, ok := c.srv.Get(p.Node()); !ok || !utf8.Valid(data) { // as strict as Python's decode("utf-8")
			t.Errorf("%s: %q of %s", unreadable, data, p.Node())
		}
		must(t, p.Leave(t.Context()))
	})
}
