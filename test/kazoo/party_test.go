package kazoo_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/kielgo/kiel/party"
)

// crowd is what both kinds of party can do.
type crowd interface {
	Node() string
	Join(ctx context.Context) error
	Leave(ctx context.Context) error
	IsMember() bool
	Members(ctx context.Context) ([]string, error)
	WaitForMembers(ctx context.Context, n int) ([]string, error)
}

func (w *world) party(c *client, identifier string) crowd {
	w.Helper()
	opts := party.KazooOptions{Identifier: identifier}
	return must[*party.KazooParty](w)(party.NewKazooParty(c.Session, w.path, opts))
}

func (w *world) shallowParty(c *client, identifier string) crowd {
	w.Helper()
	opts := party.KazooOptions{Identifier: identifier}
	return must[*party.ShallowParty](w)(party.NewShallowParty(c.Session, w.path, opts))
}

func (w *world) join(p crowd) {
	w.Helper()
	w.must(p.Join(w.Context()))
	if !p.IsMember() {
		w.Error("no member after joining")
	}
}

func (w *world) leave(p crowd) {
	w.Helper()
	w.must(p.Leave(w.Context()))
	if p.IsMember() {
		w.Error("a member after leaving")
	}
}

func (w *world) members(p crowd) []string {
	w.Helper()
	return must[[]string](w)(p.Members(w.Context()))
}

func (w *world) wantMembers(p crowd, want ...string) {
	w.Helper()
	w.wantList("members", w.members(p), want...)
}

// fiveComeAndGo is kazoo's test_party.
func (w *world) fiveComeAndGo(in func(c *client, identifier string) crowd) {
	w.Helper()
	c := w.client("client")
	var parties []crowd
	for i := range 5 {
		parties = append(parties, in(c, fmt.Sprint("p", i)))
	}
	w.wantMembers(parties[0])
	var names []string
	for i, p := range parties {
		if p.IsMember() {
			w.Error("a member before joining")
		}
		w.join(p)
		names = append(names, fmt.Sprint("p", i))
		w.wantMembers(p, names...)
	}
	for i, p := range parties {
		w.leave(p)
		w.wantMembers(p, names[i+1:]...)
	}
}

func TestParty_Party(t *testing.T) {
	both(t, func(w *world) { w.fiveComeAndGo(w.party) })
}

// A znode of our name that belongs to no session is taken for ours.
func TestParty_ReuseNode(t *testing.T) {
	both(t, func(w *world) {
		p := w.party(w.client("client"), "p1")
		w.create(p.Node())
		w.join(p)
		w.leave(p)
		w.wantMembers(p)
		w.wantList("children", w.children(w.path))
	})
}

// Somebody deletes our znode: at once we leave, and once it was made again, which kazoo does not do.
func TestParty_VanishingNode(t *testing.T) {
	both(t, func(w *world) {
		p := w.party(w.client("client"), "p1")
		for _, again := range []bool{false, true} {
			w.join(p)
			w.remove(p.Node())
			if again {
				w.until("the znode is made again", func() bool { return len(w.members(p)) == 1 })
			}
			w.leave(p)
			w.wantMembers(p)
			w.wantList("children", w.children(w.path))
		}
	})
}

func TestShallowParty_Party(t *testing.T) {
	both(t, func(w *world) { w.fiveComeAndGo(w.shallowParty) })
}
