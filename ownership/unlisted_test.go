package ownership_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// refuseList refuses a member the list of the members, until the hook is removed. It returns how often the member has created its
// znode since.
func (f *fleet) refuseList(name string) *atomic.Int64 {
	created := new(atomic.Int64)
	f.srv.SetHook(func(r *zktest.Request) zktest.Action {
		switch what := requestsOf(r); {
		case r.Client != name:
		case slices.ContainsFunc(what, func(s string) bool {
			return strings.HasPrefix(s, "create") && strings.HasSuffix(s, " /kiel/groups/g/members/*")
		}):
			created.Add(1)
		case r.Op == zktest.OpGetChildren2 && r.Path == "/kiel/groups/g/members":
			return zktest.Action{Err: zktest.ErrNoAuth}
		}
		return zktest.Action{}
	})
	return created
}

// A member that may not list the members keeps what it owns, also when it loses trust within its session: the others plan it for
// this member, and nobody else may take it.
func TestTrustLostWhileTheMembersCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.members[0]
		ses := a.sessionID()
		f.refuseList("a")
		f.distrust()
		f.allOwned(time.Minute)
		time.Sleep(3 * time.Minute)
		f.allOwned(0)
		if a.sessionID() != ses {
			t.Fatal("the session has ended")
		}
		if trouble := a.owner.Status().Troubles; !slices.ContainsFunc(trouble, func(tr status.Trouble) bool { return tr.Kind == "membership" && tr.Until == nil }) {
			t.Errorf("troubles of a: %+v", trouble)
		}
		f.srv.SetHook(nil)
		time.Sleep(10 * time.Second)
		f.allOwned(0)
	})
}

// A member that may not list the members in a new session leaves its share to the others, and does not come and go with each
// attempt.
func TestSessionLostWhileTheMembersCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.members[0]
		created := f.refuseList("a")
		f.kill(a.sessionID())
		f.within(time.Minute, "b and c own everything", func() bool {
			return len(f.members[1].owner.Owned())+len(f.members[2].owner.Owned()) == fleetSize
		})
		time.Sleep(3 * time.Minute)
		if _, _, stands := f.srv.Get("/kiel/groups/g/members/a"); stands || created.Load() > 1 {
			t.Errorf("a's znode stands: %t; created %d times", stands, created.Load())
		}
		if len(a.owner.Owned()) != 0 {
			t.Errorf("a owns %v", a.owner.Owned())
		}
		if waiting := a.owner.NotReady(); !strings.Contains(waiting, "not allowed by the acl") {
			t.Errorf("a waits for %q", waiting)
		}
		f.srv.SetHook(nil)
		f.allOwned(40 * time.Second)
	})
}
