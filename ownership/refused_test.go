package ownership_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// errQuota is what a server answers that enforces quotas, when one is full.
const errQuota zktest.Error = -125

// changing are the names in paths that differ from run to run, or between members and partitions.
var changing = regexp.MustCompile(`[0-9a-f]{32}|[0-9]{10}|t:[0-9]+|\b[abc]$`)

// requestsOf returns what a request asks for, as "operation path"; a multi asks for several things. What a session sends for
// itself is left out: that it may not prove its life is TestProofsRefused.
func requestsOf(r *zktest.Request) []string {
	var all []string
	for _, part := range append([]zktest.Request{*r}, r.Ops...) {
		if part.Path != "" && part.Path != "/" {
			all = append(all, fmt.Sprint(part.Op, " ", changing.ReplaceAllString(part.Path, "*")))
		}
	}
	return all
}

// fleet is a group of three members that own six partitions.
type fleet struct {
	*world
	members []*full
}

const fleetSize = 6

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{world: newWorld(t)}
	for _, name := range []string{"a", "b", "c"} {
		f.members = append(f.members, f.joinFull(name, []int32{0, 1, 2, 3, 4, 5}, ownership.Options{}))
	}
	f.allOwned(10 * time.Second)
	time.Sleep(20 * time.Second)
	return f
}

// end ends the fleet.
func (f *fleet) end() {
	f.close()
	time.Sleep(time.Minute) // removals in the background notice that their session has ended
}

// allOwned waits until each member owns its share.
func (f *fleet) allOwned(limit time.Duration) time.Duration {
	f.t.Helper()
	return f.within(limit, "each member owns its share", func() bool {
		return !slices.ContainsFunc(f.members, func(m *full) bool { return len(m.owner.Owned()) != fleetSize/len(f.members) })
	})
}

// distrust makes all members lose trust within their ZooKeeper sessions.
func (f *fleet) distrust() {
	f.t.Helper()
	var last []*session.Incarnation
	for _, m := range f.members {
		last = append(last, m.ses.Current())
	}
	f.srv.FreezeClock() // the sessions live on, but can't be proved to
	for _, inc := range last {
		if inc != nil {
			<-inc.Context().Done()
		}
	}
	f.srv.Thaw()
}

// disturb makes the members send all that running members send: trust is lost, a session ends, and an operator deletes a member,
// writes over the record of another, deletes the set, and the members with their directory.
func (f *fleet) disturb() {
	time.Sleep(2 * time.Second)
	f.distrust()
	time.Sleep(15 * time.Second)
	f.kill(f.members[1].sessionID())
	time.Sleep(15 * time.Second)
	_ = f.srv.Delete("/kiel/groups/g/members/a")
	time.Sleep(15 * time.Second)
	_ = f.srv.Set("/kiel/groups/g/members/c", []byte("{}"))
	time.Sleep(15 * time.Second)
	_ = f.srv.Delete("/kiel/groups/g/partitions")
	time.Sleep(30 * time.Second)
	_ = f.srv.Delete("/kiel/groups/g/members")
	time.Sleep(15 * time.Second)
}

// refused counts the requests that a server refuses.
type refused struct {
	mu    sync.Mutex
	count int
}

// refuse makes the server refuse what asks for one thing, until the hook is removed.
func (f *fleet) refuse(what string, with zktest.Error) *refused {
	n := &refused{}
	f.srv.SetHook(func(r *zktest.Request) zktest.Action {
		if !slices.Contains(requestsOf(r), what) {
			return zktest.Action{}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.count++
		return zktest.Action{Err: with}
	})
	return n
}

// allow ends the refusals, and returns how many there were.
func (f *fleet) allow(n *refused) int {
	f.srv.SetHook(nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count
}

// requestsOfMembers returns what three running members ask for, sorted.
func requestsOfMembers(t *testing.T) []string {
	t.Helper()
	var mu sync.Mutex
	seen := make(map[string]bool)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.srv.SetHook(func(r *zktest.Request) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			for _, what := range requestsOf(r) {
				seen[what] = true
			}
			return zktest.Action{}
		})
		f.disturb()
		f.srv.SetHook(nil)
		f.end()
	})
	all := slices.Sorted(maps.Keys(seen))
	if len(all) < 20 {
		t.Fatalf("only these requests were seen: %q", all)
	}
	return all
}

// eachRefusal runs a test for each request of running members, refused by an ACL, and with quotas by a quota if it writes. test
// returns how many requests were refused. A few are sent in some runs only.
func eachRefusal(t *testing.T, quotas bool, test func(t *testing.T, f *fleet, what string, with zktest.Error) int) {
	t.Helper()
	tests, idle := 0, 0
	for _, what := range requestsOfMembers(t) {
		refusals := map[string]zktest.Error{"acl": zktest.ErrNoAuth}
		if op, _, _ := strings.Cut(what, " "); quotas && (strings.HasPrefix(op, "create") || op == "setData") {
			refusals["quota"] = errQuota
		}
		for name, with := range refusals {
			t.Run(name+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t)
					defer f.end()
					tests++
					if test(t, f, what, with) == 0 {
						idle++
					}
				})
			})
		}
	}
	if idle > tests/5 {
		t.Errorf("in %d of %d tests nothing was refused", idle, tests)
	}
}

// Whatever a running member asks for may be refused for a while: no member ends, and all come back once it is allowed again. So
// the errors that end a running member are those of docs/semantics.md alone.
func TestEachRequestRefused(t *testing.T) {
	eachRefusal(t, true, func(t *testing.T, f *fleet, what string, with zktest.Error) int {
		n := f.refuse(what, with)
		f.disturb()
		count := f.allow(n)
		took := f.allOwned(40 * time.Second) // a claim that failed again and again waits for 30 s
		t.Logf("%d refused, all back after %v", count, took)
		for _, m := range f.members {
			select {
			case <-m.done:
				t.Errorf("%s has ended: %v", m.name, m.err)
			default:
			}
		}
		return count
	})
}

// A member leaves in time whatever is refused.
func TestLeavingWhileRefused(t *testing.T) {
	eachRefusal(t, false, func(t *testing.T, f *fleet, what string, with zktest.Error) int {
		n := f.refuse(what, with)
		f.disturb()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := f.members[1].owner.Stop(ctx)
		if took := time.Since(began); took > 30*time.Second || ctx.Err() != nil {
			t.Errorf("left after %v: %v", took, err)
		}
		return f.allow(n)
	})
}
