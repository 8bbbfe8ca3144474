package chaos_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
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
	zookeeper := sharedZooKeeper(t).Addrs()
	f := newFleet(t, 14, options{timeout: timeout})
	links := proxy.To(t, zookeeper) // of a
	look := &tree{t: t, s: openSession(t, zookeeper, session.Options{Timeout: timeout}), group: "/kiel/groups/" + f.topic}
	about := func(op int32, within string) func(proxy.Request) bool {
		return func(r proxy.Request) bool { return r.Op == op && bytes.Contains(r.Body, []byte(within)) }
	}
	multi := func(begins int32, within string) func(proxy.Request) bool {
		return func(r proxy.Request) bool {
			return r.Op == proxy.OpMulti && r.First == begins && bytes.Contains(r.Body, []byte(within))
		}
	}
	// lose returns what waits until it has happened. It has begun when the request passed that nobody hears of any more.
	var loss *incident
	lose := func(of string, match func(proxy.Request) bool) (await func()) {
		t.Helper()
		var at atomic.Int64
		lost := links.LoseReply(func(r proxy.Request) bool {
			return match(r) && at.CompareAndSwap(0, members.Monotonic())
		})
		return func() {
			t.Helper()
			wait.Until(t, settleLimit, func() bool {
				select {
				case <-lost:
					return true
				default:
					return false
				}
			}, func() string { return "the request was not sent: " + of })
			if f.unsettled && f.last() != loss { // what has been begun was begun for this
				*f.last() = incident{}
				f.incidents, f.unsettled = f.incidents[:len(f.incidents)-1], false
			}
			loss = f.begin("reply lost to "+of, at.Load())
			f.faultAt("reply lost", at.Load())
		}
	}

	// Joining: multi; claiming: multi.
	joined := lose("create of a member", multi(proxy.OpCreate, "/members/a"))
	claimed := lose("claim", multi(proxy.OpSetData, "/owners/"))
	a := f.hire("a", via(join(links.Addrs()...)), refreshing(time.Second))
	joined()
	claimed()
	f.settle()
	look.has("members", "a")
	look.owned(first, a)
	if n := a.count[eventlog.Joined]; n != 1 {
		t.Errorf("joined %d times", n)
	}

	// Another joins: release by multi.
	released := lose("release", multi(proxy.OpCheck, "/owners/"))
	b := f.hire("b")
	released()
	f.settle()
	look.has("members", "a", "b")
	look.owned(first, a, b)

	// Partitions are added, which a is the first to see: create sequential (the lock), set with version (the set), delete (the
	// lock again).
	locked := lose("lock", about(proxy.OpCreate, "/partitions/lock/"))
	written := lose("set", multi(proxy.OpCheck, "/partitions/lock/"))
	unlocked := lose("unlock", about(proxy.OpDelete, "/partitions/lock/"))
	f.grow(all)
	locked()
	written()
	unlocked()
	f.settle()
	look.has("partitions/lock")
	look.owned(all, a, b)

	// Leaving: multi.
	left := lose("delete of a member", multi(proxy.OpDelete, "/members/a"))
	a.Stop()
	left()
	f.settle()
	look.has("members", "b")
	look.owned(all, b)
	report := f.finish()
	look.has("members")
	look.has("owners")
	for _, m := range f.all {
		if n := m.count[eventlog.Untrusted]; n != 0 {
			t.Errorf("%s lost its trust %d times", m.Name, n)
		}
	}
	f.repeatedOnlyAfter(report)
}

// grow gives the topic more partitions.
func (f *fleet) grow(to int) {
	f.t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(f.kafka.Brokers(), config)
	if err != nil {
		f.t.Fatal(err)
	}
	err = admin.CreatePartitions(f.topic, int32(to), nil, false)
	if err := errors.Join(err, admin.Close()); err != nil {
		f.t.Fatal(err)
	}
	f.kafka.WaitTopic(f.topic, int32(to))
	more := f.ids()
	f.opts.partitions = to
	more = f.ids()[len(more):]
	for _, id := range more {
		f.added[id] = members.Monotonic()
	}
	f.feed(more)
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
func (r *tree) owned(n int, owners ...*member) {
	r.t.Helper()
	inc := incarnation(r.t, r.s)
	names := r.children("owners")
	if len(names) != n {
		r.t.Errorf("%d claims, want %d: %v", len(names), n, names)
	}
	for _, m := range owners {
		for id, own := range m.held {
			path := fmt.Sprintf("%s/owners/%s", r.group, m.f.partition(id))
			there, stat, err := inc.Exists(r.t.Context(), path)
			if err != nil {
				r.t.Fatal(err)
			}
			if id := m.hand.ses.Stats().SessionID; !there || stat.EphemeralOwner != id || stat.Czxid != own.token {
				r.t.Errorf("%s: there %v, session %x, token %d; %s has session %x, token %d",
					path, there, stat.EphemeralOwner, stat.Czxid, m.Name, id, own.token)
			}
		}
	}
}
