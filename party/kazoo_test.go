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

	"github.com/kielgo/kiel/internal/testonly/noerr"
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

// joining makes a party of one kind in a session, or ends the test.
type joining = func(s *session.Session, opts party.KazooOptions) crowd

// eachKind runs a test in a bubble for each kind.
func eachKind(t *testing.T, test func(w *world, kind string, in joining)) {
	t.Helper()
	for kind, newParty := range kinds {
		t.Run(kind, func(t *testing.T) {
			inWorld(t, func(w *world) {
				test(w, kind, func(s *session.Session, opts party.KazooOptions) crowd {
					p, err := newParty(s, opts)
					must(w, err)
					return p
				})
			})
		})
	}
}

// bothKinds is eachKind for what is alike for both, and needs no option but the identifier.
func bothKinds(t *testing.T, test func(w *world, in func(s *session.Session, identifier string) crowd)) {
	t.Helper()
	eachKind(t, func(w *world, _ string, in joining) {
		test(w, func(s *session.Session, identifier string) crowd {
			return in(s, party.KazooOptions{Identifier: identifier})
		})
	})
}

func wantMembers(tb testing.TB, p crowd, want ...string) {
	tb.Helper()
	got, err := p.Members(tb.Context())
	must(tb, err)
	if !slices.Equal(got, want) {
		tb.Errorf("members %q, want %q", got, want)
	}
}

// Five join and leave, each twice, and all is told exactly; looking makes nothing, and nothing is deleted but znodes of members.
// kazoo's own tests run in test/kazoo/suite.
func TestKazooParty(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		s := w.session("a")
		var parties []crowd
		var names []string
		for i := range 5 {
			parties = append(parties, in(s, fmt.Sprintf("p%d", i)))
		}
		wantMembers(w, parties[0])
		if _, _, ok := w.Srv.Get("/app"); ok {
			w.Error("looking created something")
		}
		for i, p := range parties {
			if p.IsMember() {
				w.Error("a member before joining")
			}
			must(w, p.Join(w.Context()))
			must(w, p.Join(w.Context())) // a second time changes nothing
			if !p.IsMember() {
				w.Error("no member after joining")
			}
			names = append(names, fmt.Sprintf("p%d", i))
			wantMembers(w, p, names...)
		}
		for i, p := range parties {
			must(w, p.Leave(w.Context()))
			must(w, p.Leave(w.Context()))
			if p.IsMember() {
				w.Error("a member after leaving")
			}
			wantMembers(w, p, names[i+1:]...)
		}
		if _, _, ok := w.Srv.Get(kazooDir); !ok {
			w.Error("the directory was deleted")
		}
		must(w, parties[0].Join(w.Context()))
		wantMembers(w, parties[0], "p0")
	})
}

// A znode of our name that exists already is taken for our own.
func TestKazooPartyReuseNode(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("a"), "p1")
		must(w, w.Srv.Create(p.Node(), nil))
		must(w, p.Join(w.Context()))
		if !p.IsMember() {
			w.Error("no member")
		}
		must(w, p.Leave(w.Context()))
		if p.IsMember() {
			w.Error("a member after leaving")
		}
		wantMembers(w, p)
	})
}

// Somebody deletes our znode, and the directory. kazoo does not notice; here it is made again.
func TestKazooPartyVanishingNode(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("a"), "p1")
		must(w, p.Join(w.Context()))
		must(w, w.Srv.Delete(p.Node()))
		synctest.Wait()
		wantMembers(w, p, "p1")
		must(w, w.Srv.Delete("/app")) // the directory too
		time.Sleep(time.Second)
		wantMembers(w, p, "p1")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		must(w, w.Srv.Delete(p.Node()))
		time.Sleep(time.Second)
		if p.IsMember() {
			w.Error("a member without a znode")
		}
		must(w, p.Leave(w.Context()))
		wantMembers(w, p)
	})
}

// The znodes are kazoo's.
func TestKazooPartyZnodes(t *testing.T) {
	forms := map[string]*regexp.Regexp{
		"Party":        regexp.MustCompile(`^/app/party/[0-9a-f]{32}__party__$`),
		"ShallowParty": regexp.MustCompile(`^/app/party/[0-9a-f]{32}-café-1$`),
	}
	eachKind(t, func(w *world, kind string, in joining) {
		s := w.session("a")
		p := in(s, party.KazooOptions{Identifier: "café-1"})
		must(w, p.Join(w.Context()))
		if !forms[kind].MatchString(p.Node()) {
			w.Errorf("node %q", p.Node())
		}
		data, stat, ok := w.Srv.Get(p.Node())
		if !ok || string(data) != "café-1" || stat.EphemeralOwner != w.sessionOf("a") {
			w.Errorf("%q, %+v, %v", data, stat, ok)
		}
		if data, stat, _ := w.Srv.Get(kazooDir); data == nil || len(data) != 0 || stat.EphemeralOwner != 0 {
			w.Errorf("directory %#v, %+v", data, stat)
		}
		p = in(s, party.KazooOptions{})
		must(w, p.Join(w.Context()))
		// Without an identifier the data is empty, not null: kazoo can't decode null.
		if data, _, _ := w.Srv.Get(p.Node()); data == nil || len(data) != 0 {
			w.Errorf("data %#v", data)
		}
		wantMembers(w, p, "", "café-1")
	})
}

// Children made by others: a Party counts those with the word anywhere, a ShallowParty all.
func TestKazooPartyForeignChildren(t *testing.T) {
	want := map[string][]string{"Party": {"one", "two"}, "ShallowParty": {"a-b", "lease_holder", "x__party__", "y__party__z"}}
	eachKind(t, func(w *world, kind string, in joining) {
		for name, data := range map[string]string{"x__party__": "one", "y__party__z": "two\xff", "lease_holder": "three", "514e5a831836450cb1a56c741e990fd8-a-b": "four"} {
			must(w, w.Srv.Create(kazooDir+"/"+name, []byte(data)))
		}
		p := in(w.session("a"), party.KazooOptions{})
		wantMembers(w, p, want[kind]...)
	})
}

// Two of one identifier are two members, and neither leaves for the other.
func TestKazooPartyOfOneIdentifier(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		one, two := in(w.session("a"), "same"), in(w.session("b"), "same")
		must(w, one.Join(w.Context()))
		must(w, two.Join(w.Context()))
		wantMembers(w, one, "same", "same")
		must(w, one.Leave(w.Context()))
		wantMembers(w, two, "same")
		must(w, two.Leave(w.Context()))
		wantMembers(w, two)
	})
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

// The session expires: the member comes back in the next one, under the same name. The old session's znode, should it still
// exist, is not taken for the new one.
func TestKazooPartyComesBack(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		s := w.session("a")
		p, observer := in(s, "p1"), in(w.session("observer"), "")
		must(w, p.Join(w.Context()))
		w.Srv.KillSession(w.sessionOf("a"))
		time.Sleep(3 * time.Second)
		wantMembers(w, observer, "p1")
		if !p.IsMember() {
			w.Error("no member")
		}
		client := w.Net.Client("a")
		client.Refuse()
		client.Cut()
		time.Sleep(timeout * 2)
		wantMembers(w, observer)
		if p.IsMember() {
			w.Error("a member without a session")
		}
		client.Heal()
		got, err := observer.WaitForMembers(w.Context(), 1)
		must(w, err)
		if !slices.Equal(got, []string{"p1"}) {
			w.Errorf("got %q", got)
		}
		time.Sleep(time.Second)
		if _, stat, _ := w.Srv.Get(p.Node()); stat.EphemeralOwner != w.sessionOf("a") || !p.IsMember() {
			w.Errorf("owner %#x, member: %v", stat.EphemeralOwner, p.IsMember())
		}
	})
}

// Replies are lost: there is one znode, and none in the end.
func TestKazooPartyLostReplies(t *testing.T) {
	for losses := 1; losses <= 3; losses++ {
		bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
			p := in(w.session("a"), "p1")
			w.Srv.LoseReply(losses, func(r zktest.Request) bool { return r.Op == zktest.OpCreate })
			must(w, p.Join(w.Context()))
			wantMembers(w, p, "p1")
			w.Srv.LoseReply(losses, func(r zktest.Request) bool { return r.Op == zktest.OpDelete })
			must(w, p.Leave(w.Context()))
			wantMembers(w, p)
			must(w, p.Join(w.Context()))
			cuts := losses
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action { // not carried out at all
				if r.Op != zktest.OpDelete || cuts == 0 {
					return zktest.Action{}
				}
				cuts--
				return zktest.Action{Cut: true}
			})
			must(w, p.Leave(w.Context()))
			wantMembers(w, p)
		})
	}
}

// The caller gives up: nothing is left, and the next one gets in.
func TestKazooPartyGivingUp(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("a"), "p1")
		must(w, p.Join(w.Context()))
		must(w, p.Leave(w.Context()))
		for _, dir := range []zktest.Direction{zktest.ToServer, zktest.ToClient} {
			client := w.Net.Client("a")
			client.BlackHole(dir)
			why := errors.New("no patience")
			ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, why)
			wantErr(w, p.Join(ctx), why)
			client.Heal()
			time.Sleep(5 * time.Second)
			if list := w.Srv.Children(kazooDir); len(list) != 0 {
				w.Errorf("left %q", list)
			}
			must(w, p.Join(w.Context()))
			client.BlackHole(dir)
			wantErr(w, p.Leave(ctx), why)
			if p.IsMember() {
				w.Error("a member while leaving")
			}
			client.Heal()
			must(w, p.Join(w.Context())) // waits for the removal
			_, joined, _ := w.Srv.Get(p.Node())
			time.Sleep(5 * time.Second)
			if _, stat, ok := w.Srv.Get(p.Node()); !ok || stat.Czxid != joined.Czxid {
				w.Error("it joined with the znode that was being removed")
			}
			must(w, p.Leave(w.Context()))
			cancel()
		}
	})
}

// Several goroutines join through one handle: one that gives up ends nobody else's Join, and the last one's end leaves nothing.
func TestKazooPartyJoiners(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("a"), "p1")
		must(w, p.Join(w.Context()))
		must(w, p.Leave(w.Context()))
		link := w.Net.Client("a")
		for _, patient := range []bool{true, false} {
			link.BlackHole(zktest.Both)
			why := errors.New("no patience")
			var joins sync.WaitGroup
			for _, patience := range []time.Duration{time.Second, 2 * time.Second} {
				joins.Go(func() {
					ctx, cancel := context.WithTimeoutCause(w.Context(), patience, why)
					defer cancel()
					wantErr(w, p.Join(ctx), why)
				})
				time.Sleep(time.Millisecond)
			}
			if patient {
				joins.Go(func() { must(w, p.Join(w.Context())) })
			}
			time.Sleep(3 * time.Second)
			link.Heal()
			joins.Wait()
			time.Sleep(5 * time.Second)
			if list := w.Srv.Children(kazooDir); p.IsMember() != patient || (len(list) == 1) != patient {
				w.Errorf("patient: %v, member: %v, there are %q", patient, p.IsMember(), list)
			}
			must(w, p.Leave(w.Context()))
		}
	})
}

// The context of the Join that began it ends at the moment at which the znode is seen: it stays for the other.
func TestKazooPartyJoinedAtTheEnd(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		s := w.session("a")
		w.Net.Client("a").Delay(50 * time.Millisecond)
		p := in(s, "p1")
		must(w, p.Join(w.Context()))
		must(w, p.Leave(w.Context()))
		begun := time.Now()
		must(w, p.Join(w.Context()))
		takes := time.Since(begun)
		must(w, p.Leave(w.Context()))
		for range 20 {
			var joins sync.WaitGroup
			joins.Go(func() {
				ctx, cancel := context.WithTimeout(w.Context(), takes)
				defer cancel()
				_ = p.Join(ctx)
			})
			time.Sleep(time.Millisecond)
			must(w, p.Join(w.Context()))
			joins.Wait()
			time.Sleep(5 * time.Second)
			if _, _, stands := w.Srv.Get(p.Node()); !stands {
				w.Error("joined, and nobody left, but the znode is gone")
			}
			must(w, p.Leave(w.Context()))
		}
	})
}

// Two wait for a third. A waiter wakes after a lost connection, too.
func TestKazooPartyWaitForMembers(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		waiter := in(w.session("waiter"), "")
		result := make(chan []string, 1)
		go func() {
			list, err := waiter.WaitForMembers(w.Context(), 2)
			noerr.Want(w, err)
			result <- list
		}()
		time.Sleep(time.Second)
		s := w.session("a")
		one, two := in(s, "one"), in(s, "two")
		must(w, one.Join(w.Context()))
		time.Sleep(time.Second)
		if len(result) != 0 {
			w.Fatal("did not wait")
		}
		client := w.Net.Client("waiter")
		client.Refuse()
		client.Cut()
		must(w, two.Join(w.Context()))
		time.Sleep(time.Second)
		client.Heal()
		if got := <-result; !slices.Equal(got, []string{"one", "two"}) {
			w.Errorf("got %q", got)
		}
		ctx, cancel := context.WithTimeout(w.Context(), 15*time.Second)
		defer cancel()
		start := time.Now()
		_, err := waiter.WaitForMembers(ctx, 3)
		wantErr(w, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "there are 2") || time.Since(start) != 15*time.Second {
			w.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A join that the servers refuse says why, and goes on trying once it was in.
func TestKazooPartyRefused(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("a"), "p1")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		wantErr(w, p.Join(w.Context()), session.ErrNoAuth)
		w.unhook()
		must(w, p.Join(w.Context()))
		wantMembers(w, p, "p1")
	})
}

// The session is closed under a member, before it joins, and never run.
func TestKazooPartySessionClosed(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		s, stop := w.stoppable("a", session.Options{})
		p := in(s, "p1")
		must(w, p.Join(w.Context()))
		start := time.Now()
		stop()
		if d := time.Since(start); d > time.Second {
			w.Errorf("the session ended after %v", d)
		}
		if p.IsMember() || len(w.Srv.Children(kazooDir)) != 0 {
			w.Error("still there")
		}
		must(w, p.Leave(w.Context()))
		wantErr(w, p.Join(w.Context()), session.ErrClosed)
		_, err := p.WaitForMembers(w.Context(), 1)
		wantErr(w, err, session.ErrClosed)
	})
}
