package chaos_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// Scenario 14: a request is executed, and instead of its reply the connection is reset. For each kind of request that members
// send it must come to the same in the end, and nothing may be left behind.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	const (
		first, all = 12, 16          // partitions, before and after some are added
		timeout    = 9 * time.Second // a connection can be had again in time even on a busy machine
	)
	about := func(op int32, within string) func(proxy.Request) bool {
		return func(r proxy.Request) bool { return r.Op == op && bytes.Contains(r.Body, []byte(within)) }
	}
	multi := func(begins int32, within string) func(proxy.Request) bool {
		return func(r proxy.Request) bool {
			return r.Op == proxy.OpMulti && r.First == begins && bytes.Contains(r.Body, []byte(within))
		}
	}
	c := &crew{t: t, group: nameOfTest.Replace(t.Name()), addrs: sharedZooKeeper(t).Addrs(), timeout: timeout}
	look := &tree{t: t, s: openSession(t, c.addrs, session.Options{Timeout: timeout}), group: "/kiel/groups/" + c.group}
	lose := func(h *hand, match func(proxy.Request) bool) (await func()) {
		t.Helper()
		injected.add("reply lost")
		lost, begin := h.links.LoseReply(match), time.Now()
		return func() {
			t.Helper()
			wait.Until(t, settleLimit, func() bool {
				select {
				case <-lost:
					return true
				default:
					return false
				}
			}, func() string { return "the request was not sent" })
			t.Logf("lost after %v", time.Since(begin))
		}
	}
	a, b := c.hire("a", first), c.hire("b", first)

	// Joining: create ephemeral; claiming: multi.
	joined, claimed := lose(a, about(proxy.OpCreate, "/members/a")), lose(a, multi(proxy.OpSetData, "/owners/"))
	a.work(t)
	joined()
	claimed()
	t.Attr("joined-and-claimed", ms(c.owned(first, a)).String())
	look.has("members", "a")
	look.owned(first, a)
	if n := a.count(eventlog.Joined); n != 1 {
		t.Errorf("joined %d times", n)
	}

	// Another joins: release by multi.
	released := lose(a, multi(proxy.OpCheck, "/owners/"))
	b.work(t)
	released()
	t.Attr("released", ms(c.owned(first, a, b)).String())
	look.has("members", "a", "b")
	look.owned(first, a, b)

	// Partitions are added: create sequential (the lock), set with version (the set), delete (the lock again).
	locked := lose(a, about(proxy.OpCreate, "/partitions/lock/"))
	written := lose(a, multi(proxy.OpCheck, "/partitions/lock/"))
	unlocked := lose(a, about(proxy.OpDelete, "/partitions/lock/"))
	if err := a.alloc.AddPartitions(t.Context(), partitions(first, all)); err != nil {
		t.Errorf("add: %v", err)
	}
	locked()
	written()
	unlocked()
	t.Attr("added", ms(c.owned(all, a, b)).String())
	look.has("partitions/lock")
	look.owned(all, a, b)

	// Leaving: delete of the member.
	left := lose(a, about(proxy.OpDelete, "/members/a"))
	begin := time.Now()
	if err := a.leave(); err != nil {
		t.Errorf("leave: %v", err)
	}
	t.Attr("left", ms(time.Since(begin)).String())
	left()
	c.owned(all, b)
	look.has("members", "b")
	look.owned(all, b)
	if err := b.leave(); err != nil {
		t.Errorf("leave: %v", err)
	}
	look.has("members")
	look.has("owners")
	for _, h := range []*hand{a, b} {
		if n := h.count(eventlog.Untrusted); n != 0 {
			t.Errorf("%s lost its trust %d times", h.name, n)
		}
	}
	c.verdict()
}

// tree looks at the znodes of a group.
type tree struct {
	t     *testing.T
	s     *session.Session
	group string
}

func (r *tree) children(of string) []string {
	r.t.Helper()
	inc := incarnation(r.t, r.s)
	if err := inc.Sync(r.t.Context(), "/"); err != nil {
		r.t.Fatal(err)
	}
	names, _, err := inc.Children(r.t.Context(), r.group+"/"+of)
	if err != nil {
		r.t.Fatal(err)
	}
	return names
}

// has says that a znode has these children in the end, and no others.
func (r *tree) has(of string, want ...string) {
	r.t.Helper()
	var got []string
	wait.Until(r.t, settleLimit, func() bool { got = r.children(of); return slices.Equal(got, want) },
		func() string { return fmt.Sprintf("%s has %v, want %v", of, got, want) })
}

// owned says that there are n claims, each held by the session of the member that has it.
func (r *tree) owned(n int, hands ...*hand) {
	r.t.Helper()
	inc := incarnation(r.t, r.s)
	names := r.children("owners")
	if len(names) != n {
		r.t.Errorf("%d claims, want %d: %v", len(names), n, names)
	}
	for _, h := range hands {
		for _, info := range h.owner.Owned() {
			path := fmt.Sprintf("%s/owners/%s:%d", r.group, info.Topic, info.Partition)
			there, stat, err := inc.Exists(r.t.Context(), path)
			if err != nil {
				r.t.Fatal(err)
			}
			if id := h.ses.Stats().SessionID; !there || stat.EphemeralOwner != id || stat.Czxid != info.Token {
				r.t.Errorf("%s: there %v, session %x, token %d; %s has session %x, token %d",
					path, there, stat.EphemeralOwner, stat.Czxid, h.name, id, info.Token)
			}
		}
	}
}
