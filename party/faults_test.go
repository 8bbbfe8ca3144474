package party_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/zktest"
)

func TestCrashIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		before := b.joined()
		a.awaitNames(time.Second, "a", "b")
		c.net.Client("b").Freeze()
		_, took := a.awaitNames(timeout+2*tick, "a")
		t.Logf("seen after %v", took)
		c.net.Client("b").Heal()
		// It comes back by itself, in a new session.
		a.awaitNames(10*time.Second, "a", "b")
		after, _ := b.await(10*time.Second, "itself again", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && v.Joined && m.Czxid != before
		})
		if !after.Incarnation.Trusted() {
			t.Error("joined under an incarnation that is over")
		}
	})
}

func TestRejoinsInNewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		b.joined()
		view, _ := a.awaitNames(time.Second, "a", "b")
		old, _ := view.Member("b")
		if !c.srv.KillSession(old.Session) {
			t.Fatal("no such session")
		}
		view, _ = a.await(5*time.Second, "b in a new session", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && m.Session != old.Session
		})
		if m, _ := view.Member("b"); m.Czxid <= old.Czxid {
			t.Errorf("czxid %d after %d", m.Czxid, old.Czxid)
		}
		b.await(time.Second, "itself", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && v.Joined && m.Session == v.Incarnation.SessionID() && m.Session != old.Session
		})
	})
}

func TestCutKeepsZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		czxid := a.joined()
		version := a.View().Version
		c.net.Client("a").Cut()
		time.Sleep(3 * timeout)
		if stat, ok := c.stands("a"); !ok || stat.Czxid != czxid {
			t.Errorf("the znode is %+v, %v; had czxid %d", stat, ok, czxid)
		}
		if v := a.View(); v.Version != version || !v.Joined {
			t.Errorf("version %d became %s", version, show(v))
		}
		if age := time.Since(a.View().At); age > timeout+time.Second {
			t.Errorf("the view was read %v ago", age)
		}
	})
}

func TestTrustLostAndRegainedKeepsZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		czxid := a.joined()
		first := a.View()
		c.srv.FreezeClock() // the session lives on, but can't be proved to
		<-first.Incarnation.Context().Done()
		c.srv.Thaw()
		view, _ := a.await(10*time.Second, "a new incarnation", func(v *party.View) bool { return v.Incarnation != first.Incarnation })
		if view.Incarnation.SessionID() != first.Incarnation.SessionID() {
			t.Fatal("it is another session")
		}
		if m, _ := view.Member("a"); !view.Joined || m.Czxid != czxid || view.Version != first.Version+1 {
			t.Errorf("czxid %d, now %d in %s", czxid, m.Czxid, show(view))
		}
	})
}

func TestOperatorDeletesMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		before := a.joined()
		b.awaitNames(time.Second, "a", "b")
		time.Sleep(time.Minute)
		must(t, c.srv.Delete(node("a")))
		again := func(v *party.View) bool {
			m, ok := v.Member("a")
			return ok && m.Czxid > before
		}
		_, took := b.await(time.Second, "a again", again)
		if took > 100*time.Millisecond {
			t.Errorf("came back after %v", took)
		}
		if view, _ := a.await(time.Second, "itself again", again); !view.Joined {
			t.Error("not joined")
		}
	})
}

func TestOperatorDeletesDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		before := max(a.joined(), b.joined())
		for _, path := range []string{directory, "/kiel", "/kiel/groups/g"} {
			time.Sleep(time.Minute)
			must(t, c.srv.Delete(path))
			for _, m := range []*member{a, b} {
				_, took := m.await(time.Second, "both again", func(v *party.View) bool {
					return v.Joined && len(v.Members) == 2 && v.Members[0].Czxid > before && v.Members[1].Czxid > before
				})
				if took > 500*time.Millisecond {
					t.Errorf("%s came back after %v", m.Name(), took)
				}
			}
			before = max(a.joined(), b.joined())
		}
	})
}

// TestServerLosesItsData: a wiped server is like a deleted directory.
func TestServerLosesItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		a.joined()
		b.joined()
		c.srv.Restart(true)
		for _, m := range []*member{a, b} {
			m.await(time.Minute, "both again", func(v *party.View) bool {
				return v.Joined && v.Incarnation.Trusted() && len(v.Members) == 2
			})
		}
	})
}

func TestLostReplyOfCreate(t *testing.T) {
	for _, executed := range []bool{true, false} {
		t.Run(fmt.Sprintf("executed=%v", executed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				must(t, c.srv.Create(directory, nil))
				hit := 0
				var after []zktest.Op
				c.srv.SetHook(func(r *zktest.Request) zktest.Action {
					if hit > 0 && strings.HasPrefix(r.Path, directory) {
						after = append(after, r.Op)
					}
					if hit < 3 && r.Path == node("a") && (r.Op == zktest.OpCreate || r.Op == zktest.OpCreate2) {
						hit++
						return zktest.Action{LoseReply: executed, Cut: !executed}
					}
					return zktest.Action{}
				})
				a := c.join("a")
				czxid := a.joined()
				c.unhook()
				if hit == 0 {
					t.Fatal("no reply was lost")
				}
				if executed && hit > 1 {
					t.Errorf("sent %d times", hit)
				}
				if after[0] != zktest.OpSync {
					t.Errorf("looked without a sync: %v", after)
				}
				time.Sleep(time.Minute)
				if stat, ok := c.stands("a"); !ok || stat.Czxid != czxid || stat.EphemeralOwner != c.sessionOf("a") {
					t.Errorf("znode %+v, %v", stat, ok)
				}
				must(t, a.stop())
				if _, ok := c.stands("a"); ok {
					t.Error("the znode was left behind")
				}
			})
		})
	}
}

func TestLostReplyOfDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		a.joined()
		c.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpDelete })
		must(t, a.Leave(t.Context()))
		if _, ok := c.stands("a"); ok {
			t.Error("the znode stands")
		}
	})
}
