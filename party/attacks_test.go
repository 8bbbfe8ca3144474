package party_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/internal/sabotage/attack"
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

// attackBoth runs an execution on both kinds of kazoo's parties.
func attackBoth(t *testing.T, harm string, execution func(a *attack.Attack, c *cluster, in func(*session.Session) crowd), rules ...sabotage.Rule) {
	t.Helper()
	for kind, newParty := range kinds {
		t.Run(kind, func(t *testing.T) {
			attack.Run(t, harm, func(a *attack.Attack) {
				execution(a, newCluster(a.T), func(s *session.Session) crowd {
					p, err := newParty(s, party.KazooOptions{Identifier: "p1"})
					must(a.T, err)
					return p
				})
			}, rules...)
		})
	}
}

// recipe-attacks.md §8: a member leaves, the server does not remove its znode yet, and it joins again. The name is the same, so
// that the znode would be taken for the new one, and be removed under it.
func TestJoinBesideTheLeave(t *testing.T) {
	attackBoth(t, vanishes, func(a *attack.Attack, c *cluster, in func(*session.Session) crowd) {
		s, _ := c.session("g")
		p := in(s)
		must(a.T, p.Join(a.Context()))
		var free, joined atomic.Bool
		c.srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op != zktest.OpDelete || r.Path != p.Node():
			case !free.Load():
				return zktest.Action{Err: zktest.ErrThrottled}
			case joined.Load():
				a.Harmed(vanishes, "by its own leave")
			}
			return zktest.Action{}
		})
		ctx, cancel := context.WithTimeout(a.Context(), time.Second)
		defer cancel()
		if err := p.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			a.Fatalf("left: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			err := p.Join(a.Context())
			joined.Store(true)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		free.Store(true)
		must(a.T, <-done)
		time.Sleep(5 * time.Second)
		c.unhook()
		wantMembers(a.T, p, "p1")
		must(a.T, p.Leave(a.Context()))
	}, sabotage.EarlierGone)
}

// recipe-attacks.md §15, ghosts: a znode of a session that is about to end bears our name. It is waited for, not taken for
// ours: that it is there says nothing about the next moment.
func TestJoinBesideTheOldZnode(t *testing.T) {
	attackBoth(t, vanishes, func(a *attack.Attack, c *cluster, in func(*session.Session) crowd) {
		s, _ := c.session("g")
		p := in(s)
		old, stopOld := c.session("old")
		inc := incarnation(c, old)
		must(a.T, inc.EnsurePath(c.Context(), kazooDir))
		_, err := inc.Create(c.Context(), p.Node(), []byte("p1"), session.Ephemeral)
		must(a.T, err)
		go func() {
			time.Sleep(5 * time.Second)
			stopOld()
		}()
		start := time.Now()
		must(a.T, p.Join(a.Context()))
		if _, stat, ok := c.srv.Get(p.Node()); !ok || stat.EphemeralOwner != c.sessionOf("g") {
			a.Harmed(vanishes, "after %v: the znode is of session %#x", time.Since(start), stat.EphemeralOwner)
		} else if d := time.Since(start); d < 5*time.Second {
			a.Errorf("joined after %v", d)
		}
		time.Sleep(10 * time.Second)
		wantMembers(a.T, p, "p1")
		must(a.T, p.Leave(a.Context()))
	}, sabotage.OwnSession)
}

// recipe-attacks.md §13: somebody deletes the party's directory. A Python process that has made it once does not make it
// again: it can join because our member, who comes back, has.
func TestDirectoryDeleted(t *testing.T) {
	attackBoth(t, pythonFails, func(a *attack.Attack, c *cluster, in func(*session.Session) crowd) {
		must(a.T, c.srv.Create(kazooDir, nil))
		s, _ := c.session("g")
		p := in(s)
		must(a.T, p.Join(a.Context()))
		python, _ := c.session("python")
		inc := incarnation(c, python)
		must(a.T, c.srv.Delete(kazooDir))
		time.Sleep(time.Second)
		_, err := inc.Create(c.Context(), kazooDir+"/0123456789abcdef0123456789abcdef__party__", []byte("p2"), session.Ephemeral)
		switch {
		case errors.Is(err, session.ErrNoNode):
			a.Harmed(pythonFails, "%v", err)
		case err != nil || !p.IsMember():
			a.Errorf("%v, member: %v", err, p.IsMember())
		}
		must(a.T, p.Leave(a.Context()))
	}, sabotage.EnsureAgain)
}

// recipe-attacks.md §13: an identifier that is no UTF-8. Who iterates over kazoo's Party decodes those of all, and gets
// UnicodeDecodeError. New refuses it, and is given another. A ShallowParty's is a name of a znode, which must be UTF-8 anyhow.
func TestIdentifierThatPythonCannotRead(t *testing.T) {
	attack.Run(t, unreadable, func(a *attack.Attack) {
		c := newCluster(a.T)
		s, _ := c.session("g")
		p, err := party.NewKazooPartyIn(a.Context(), s, kazooDir, party.KazooOptions{Identifier: "z\xfcrich"})
		if err != nil {
			p, err = party.NewKazooPartyIn(a.Context(), s, kazooDir, party.KazooOptions{Identifier: "z\u00fcrich"})
		}
		must(a.T, err)
		must(a.T, p.Join(a.Context()))
		if data, _, ok := c.srv.Get(p.Node()); !ok || !utf8.Valid(data) { // as strict as Python's decode("utf-8")
			a.Harmed(unreadable, "%q of %s", data, p.Node())
		}
		must(a.T, p.Leave(a.Context()))
	}, sabotage.IdentifierText)
}
