package party_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// kazooDir is where the parties of these tests are.
const kazooDir = "/app/party"

// crowd is what both kinds can do.
type crowd interface {
	Node() string
	Join(ctx context.Context) error
	Leave(ctx context.Context) error
	IsMember() bool
	Members(ctx context.Context) ([]string, error)
	WaitForMembers(ctx context.Context, n int) ([]string, error)
}

// kinds are the constructors of both.
var kinds = map[string]func(s *session.Session, opts party.KazooOptions) (crowd, error){
	"Party": func(s *session.Session, opts party.KazooOptions) (crowd, error) {
		return party.NewKazooParty(s, kazooDir, opts)
	},
	"ShallowParty": func(s *session.Session, opts party.KazooOptions) (crowd, error) {
		return party.NewShallowParty(s, kazooDir, opts)
	},
}

// bothKinds runs a test in a bubble for each kind.
func bothKinds(t *testing.T, test func(t *testing.T, c *cluster, in func(s *session.Session, identifier string) crowd)) {
	t.Helper()
	for kind, newParty := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				test(t, c, func(s *session.Session, identifier string) crowd {
					p, err := newParty(s, party.KazooOptions{Identifier: identifier})
					must(t, err)
					return p
				})
			})
		})
	}
}

func wantMembers(t *testing.T, p crowd, want ...string) {
	t.Helper()
	got, err := p.Members(t.Context())
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
}

// Five join and leave, each twice, and all is told exactly; looking makes nothing, and nothing is deleted but znodes of
// members. kazoo's own cases are in test/kazoo.
func TestKazooParty(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		var parties []crowd
		var names []string
		for i := range 5 {
			parties = append(parties, in(s, fmt.Sprintf("p%d", i)))
		}
		wantMembers(t, parties[0])
		if _, _, ok := c.srv.Get("/app"); ok {
			t.Error("looking created something")
		}
		for i, p := range parties {
			if p.IsMember() {
				t.Error("a member before joining")
			}
			must(t, p.Join(t.Context()))
			must(t, p.Join(t.Context())) // a second time changes nothing
			if !p.IsMember() {
				t.Error("no member after joining")
			}
			names = append(names, fmt.Sprintf("p%d", i))
			wantMembers(t, p, names...)
		}
		for i, p := range parties {
			must(t, p.Leave(t.Context()))
			must(t, p.Leave(t.Context()))
			if p.IsMember() {
				t.Error("a member after leaving")
			}
			wantMembers(t, p, names[i+1:]...)
		}
		if _, _, ok := c.srv.Get(kazooDir); !ok {
			t.Error("the directory was deleted")
		}
		must(t, parties[0].Join(t.Context()))
		wantMembers(t, parties[0], "p0")
	})
}

// A znode of our name that stands already is taken for ours.
func TestKazooPartyReuseNode(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		p := in(s, "p1")
		must(t, c.srv.Create(p.Node(), nil))
		must(t, p.Join(t.Context()))
		if !p.IsMember() {
			t.Error("no member")
		}
		must(t, p.Leave(t.Context()))
		if p.IsMember() {
			t.Error("a member after leaving")
		}
		wantMembers(t, p)
	})
}

// Somebody deletes our znode, and the directory. kazoo does not notice; here
// it is made again.
func TestKazooPartyVanishingNode(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		p := in(s, "p1")
		must(t, p.Join(t.Context()))
		must(t, c.srv.Delete(p.Node()))
		synctest.Wait()
		wantMembers(t, p, "p1")
		must(t, c.srv.Delete("/app")) // the directory too
		time.Sleep(time.Second)
		wantMembers(t, p, "p1")
		c.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		must(t, c.srv.Delete(p.Node()))
		time.Sleep(time.Second)
		if p.IsMember() {
			t.Error("a member without a znode")
		}
		must(t, p.Leave(t.Context()))
		wantMembers(t, p)
	})
}

// The znodes are kazoo's.
func TestKazooPartyZnodes(t *testing.T) {
	forms := map[string]*regexp.Regexp{
		"Party":        regexp.MustCompile(`^/app/party/[0-9a-f]{32}__party__$`),
		"ShallowParty": regexp.MustCompile(`^/app/party/[0-9a-f]{32}-café-1$`),
	}
	for kind, newParty := range kinds {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, _ := c.session("a")
			p, err := newParty(s, party.KazooOptions{Identifier: "café-1"})
			must(t, err)
			must(t, p.Join(t.Context()))
			if !forms[kind].MatchString(p.Node()) {
				t.Errorf("%s: node %q", kind, p.Node())
			}
			data, stat, ok := c.srv.Get(p.Node())
			if !ok || string(data) != "café-1" || stat.EphemeralOwner != c.sessionOf("a") {
				t.Errorf("%s: %q, %+v, %v", kind, data, stat, ok)
			}
			if data, stat, _ := c.srv.Get(kazooDir); data == nil || len(data) != 0 || stat.EphemeralOwner != 0 {
				t.Errorf("%s: directory %#v, %+v", kind, data, stat)
			}
			p, err = newParty(s, party.KazooOptions{})
			must(t, err)
			must(t, p.Join(t.Context()))
			// Without an identifier the data is empty, not null: kazoo can't decode null.
			if data, _, _ := c.srv.Get(p.Node()); data == nil || len(data) != 0 {
				t.Errorf("%s: data %#v", kind, data)
			}
			wantMembers(t, p, "", "café-1")
		})
	}
}

// Children made by others: a Party counts those with the word anywhere, a ShallowParty all.
func TestKazooPartyForeignChildren(t *testing.T) {
	want := map[string][]string{"Party": {"one", "two"}, "ShallowParty": {"a-b", "lease_holder", "x__party__", "y__party__z"}}
	for kind, newParty := range kinds {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			for name, data := range map[string]string{"x__party__": "one", "y__party__z": "two\xff", "lease_holder": "three", "514e5a831836450cb1a56c741e990fd8-a-b": "four"} {
				must(t, c.srv.Create(kazooDir+"/"+name, []byte(data)))
			}
			s, _ := c.session("a")
			p, err := newParty(s, party.KazooOptions{})
			must(t, err)
			wantMembers(t, p, want[kind]...)
		})
	}
}

func TestNewKazooPartyRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	must(t, err)
	for what, create := range map[string]func() error{
		"no session": func() error { _, err := party.NewKazooParty(nil, kazooDir, party.KazooOptions{}); return err },
		"path":       func() error { _, err := party.NewKazooParty(s, "app", party.KazooOptions{}); return err },
		"UTF-8": func() error {
			_, err := party.NewKazooParty(s, kazooDir, party.KazooOptions{Identifier: "\xff"})
			return err
		},
		"slash": func() error {
			_, err := party.NewShallowParty(s, kazooDir, party.KazooOptions{Identifier: "a/b"})
			return err
		},
		"bad character": func() error {
			_, err := party.NewShallowParty(s, kazooDir, party.KazooOptions{Identifier: "a\n"})
			return err
		},
	} {
		if err := create(); err == nil || !strings.HasPrefix(err.Error(), "party: ") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// The session expires: the member comes back in the next one, under the same name. The old
// session's znode, should it still stand, is not taken for the new one.
func TestKazooPartyComesBack(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		o, _ := c.session("observer")
		p, observer := in(s, "p1"), in(o, "")
		must(t, p.Join(t.Context()))
		c.srv.KillSession(c.sessionOf("a"))
		time.Sleep(3 * time.Second)
		wantMembers(t, observer, "p1")
		if !p.IsMember() {
			t.Error("no member")
		}
		client := c.net.Client("a")
		client.Refuse()
		client.Cut()
		time.Sleep(timeout * 2)
		wantMembers(t, observer)
		if p.IsMember() {
			t.Error("a member without a session")
		}
		client.Heal()
		got, err := observer.WaitForMembers(t.Context(), 1)
		must(t, err)
		if !slices.Equal(got, []string{"p1"}) {
			t.Errorf("got %q", got)
		}
		time.Sleep(time.Second)
		if _, stat, _ := c.srv.Get(p.Node()); stat.EphemeralOwner != c.sessionOf("a") || !p.IsMember() {
			t.Errorf("owner %#x, member: %v", stat.EphemeralOwner, p.IsMember())
		}
	})
}

// Replies are lost: there is one znode, and none in the end.
func TestKazooPartyLostReplies(t *testing.T) {
	for losses := 1; losses <= 3; losses++ {
		bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
			s, _ := c.session("a")
			p := in(s, "p1")
			c.srv.LoseReply(losses, func(r zktest.Request) bool { return r.Op == zktest.OpCreate })
			must(t, p.Join(t.Context()))
			wantMembers(t, p, "p1")
			c.srv.LoseReply(losses, func(r zktest.Request) bool { return r.Op == zktest.OpDelete })
			must(t, p.Leave(t.Context()))
			wantMembers(t, p)
			must(t, p.Join(t.Context()))
			cuts := losses
			c.srv.SetHook(func(r *zktest.Request) zktest.Action { // not carried out at all
				if r.Op != zktest.OpDelete || cuts == 0 {
					return zktest.Action{}
				}
				cuts--
				return zktest.Action{Cut: true}
			})
			must(t, p.Leave(t.Context()))
			wantMembers(t, p)
		})
	}
}

// The caller gives up: nothing is left, and the next one gets in.
func TestKazooPartyGivingUp(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		p := in(s, "p1")
		must(t, p.Join(t.Context()))
		must(t, p.Leave(t.Context()))
		for _, dir := range []zktest.Direction{zktest.ToServer, zktest.ToClient} {
			client := c.net.Client("a")
			client.BlackHole(dir)
			why := errors.New("no patience")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
			wantErr(t, p.Join(ctx), why)
			client.Heal()
			time.Sleep(5 * time.Second)
			if list := c.srv.Children(kazooDir); len(list) != 0 {
				t.Errorf("left %q", list)
			}
			must(t, p.Join(t.Context()))
			client.BlackHole(dir)
			wantErr(t, p.Leave(ctx), why)
			if p.IsMember() {
				t.Error("a member while leaving")
			}
			client.Heal()
			must(t, p.Join(t.Context())) // waits for the removal
			_, joined, _ := c.srv.Get(p.Node())
			time.Sleep(5 * time.Second)
			if _, stat, ok := c.srv.Get(p.Node()); !ok || stat.Czxid != joined.Czxid {
				t.Error("it joined with the znode that was being removed")
			}
			must(t, p.Leave(t.Context()))
			cancel()
		}
	})
}

// Several goroutines join through one handle: one that gives up ends nobody else's Join, and the last one's
// end leaves nothing.
func TestKazooPartyJoiners(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		p := in(s, "p1")
		must(t, p.Join(t.Context()))
		must(t, p.Leave(t.Context()))
		link := c.net.Client("a")
		for _, patient := range []bool{true, false} {
			link.BlackHole(zktest.Both)
			why := errors.New("no patience")
			var joins sync.WaitGroup
			for _, patience := range []time.Duration{time.Second, 2 * time.Second} {
				joins.Go(func() {
					ctx, cancel := context.WithTimeoutCause(t.Context(), patience, why)
					defer cancel()
					wantErr(t, p.Join(ctx), why)
				})
				time.Sleep(time.Millisecond)
			}
			if patient {
				joins.Go(func() { must(t, p.Join(t.Context())) })
			}
			time.Sleep(3 * time.Second)
			link.Heal()
			joins.Wait()
			time.Sleep(5 * time.Second)
			if list := c.srv.Children(kazooDir); p.IsMember() != patient || (len(list) == 1) != patient {
				t.Errorf("patient: %v, member: %v, there are %q", patient, p.IsMember(), list)
			}
			must(t, p.Leave(t.Context()))
		}
	})
}

// The context of the Join that began it ends at the moment at which the znode is seen: it stays for the other.
func TestKazooPartyJoinedAtTheEnd(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		c.net.Client("a").Delay(50 * time.Millisecond)
		p := in(s, "p1")
		must(t, p.Join(t.Context()))
		must(t, p.Leave(t.Context()))
		begun := time.Now()
		must(t, p.Join(t.Context()))
		takes := time.Since(begun)
		must(t, p.Leave(t.Context()))
		for range 20 {
			var joins sync.WaitGroup
			joins.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), takes)
				defer cancel()
				_ = p.Join(ctx)
			})
			time.Sleep(time.Millisecond)
			must(t, p.Join(t.Context()))
			joins.Wait()
			time.Sleep(5 * time.Second)
			if _, _, stands := c.srv.Get(p.Node()); !stands {
				t.Error("joined, and nobody left, but the znode is gone")
			}
			must(t, p.Leave(t.Context()))
		}
	})
}

// Two wait for a third. A waiter wakes after a lost connection, too.
func TestKazooPartyWaitForMembers(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		w, _ := c.session("waiter")
		waiter := in(w, "")
		result := make(chan []string, 1)
		go func() {
			list, err := waiter.WaitForMembers(t.Context(), 2)
			if err != nil {
				t.Error(err)
			}
			result <- list
		}()
		time.Sleep(time.Second)
		s, _ := c.session("a")
		one, two := in(s, "one"), in(s, "two")
		must(t, one.Join(t.Context()))
		time.Sleep(time.Second)
		if len(result) != 0 {
			t.Fatal("did not wait")
		}
		client := c.net.Client("waiter")
		client.Refuse()
		client.Cut()
		must(t, two.Join(t.Context()))
		time.Sleep(time.Second)
		client.Heal()
		if got := <-result; !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("got %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		start := time.Now()
		_, err := waiter.WaitForMembers(ctx, 3)
		wantErr(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "there are 2") || time.Since(start) != 15*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A join that the servers refuse says why, and goes on trying once it was in.
func TestKazooPartyRefused(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, _ := c.session("a")
		p := in(s, "p1")
		c.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		wantErr(t, p.Join(t.Context()), session.ErrNoAuth)
		c.unhook()
		must(t, p.Join(t.Context()))
		wantMembers(t, p, "p1")
	})
}

// The session is closed under a member, before it joins, and never run.
func TestKazooPartySessionClosed(t *testing.T) {
	bothKinds(t, func(t *testing.T, c *cluster, in func(*session.Session, string) crowd) {
		s, stop := c.session("a")
		p := in(s, "p1")
		must(t, p.Join(t.Context()))
		start := time.Now()
		stop()
		if d := time.Since(start); d > time.Second {
			t.Errorf("the session ended after %v", d)
		}
		if p.IsMember() || len(c.srv.Children(kazooDir)) != 0 {
			t.Error("still there")
		}
		must(t, p.Leave(t.Context()))
		wantErr(t, p.Join(t.Context()), session.ErrClosed)
		_, err := p.WaitForMembers(t.Context(), 1)
		wantErr(t, err, session.ErrClosed)
	})
}
